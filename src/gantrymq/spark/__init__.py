"""Gantry as a source and a sink for Apache Spark; importing it imports no Spark."""
