"""Pipelines: Spark Declarative Pipelines projects that ship with the package, and what runs them.

- `shelf` lists the projects and what each can be told; `making` writes one into a directory;
- `running` runs the project of a directory, with its progress on the terminal;
- `archiving`, `archive_log` and `compacting` are the archive: a sink that writes each message once;
- `replaying`, `archive_reading` and `archive_index` are the replay: sources in the original order;
- `tracing`, `latencies` and `trace_report` are traces;
- `sampling` and `lag_report` are lag and skew.

A project is an ordinary one: `spark-pipelines run` in its directory does the same work, and goes on
where `gantry pipeline run` ended.
"""
