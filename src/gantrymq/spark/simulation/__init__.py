"""The rules of load balancing on clusters that nobody has at home: as many sends as there are."""
