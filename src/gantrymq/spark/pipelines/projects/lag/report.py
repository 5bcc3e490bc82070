"""What becomes of the looks after each run: tables of Parquet, and a page."""

from gantrymq.spark.pipelines.lag_report import report

__all__ = ["report"]
