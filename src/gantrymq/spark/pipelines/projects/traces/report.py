"""What becomes of the records after each run: tables of Parquet, and a page."""

from gantrymq.spark.pipelines.trace_report import report

__all__ = ["report"]
