"""Messages on disk, in RocketMQ's files: the log, its consume queues and index, and their care."""
