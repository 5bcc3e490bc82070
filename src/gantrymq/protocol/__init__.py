"""The catalogue of typed requests and replies, and the names and limits that RocketMQ checks."""
