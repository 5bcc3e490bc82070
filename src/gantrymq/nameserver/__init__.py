"""The name server: which brokers there are, which topics they have, and a table of keys."""
