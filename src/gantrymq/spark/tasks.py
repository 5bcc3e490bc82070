"""What the options and the schema of a query come to in its tasks."""

from __future__ import annotations

from pyspark.sql.types import StructType

from gantrymq.spark.options import Options
from gantrymq.spark.projecting import Projection
from gantrymq.spark.reading import TaskReader


def task_reader(options: Options, schema: StructType) -> TaskReader:
    """What reads the columns of `schema` in a task."""
    source = options.source
    return TaskReader(
        options.client,
        source.terms,
        Projection(source, schema),
        fails=source.fail_on_data_loss,
        window=source.duplicates_window if source.drop_duplicates else None,
    )
