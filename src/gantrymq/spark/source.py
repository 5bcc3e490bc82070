"""`format("rocketmq")`: what Spark makes when it reads or writes, and the reader of batches."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from gantrymq.spark import bounding
from gantrymq.spark.options import Options, check_sink, check_source, parse
from gantrymq.spark.projecting import default_schema
from gantrymq.spark.reading import Ranges
from gantrymq.spark.schema import named_columns
from gantrymq.spark.streaming import StreamReader
from gantrymq.spark.tasks import task_reader
from gantrymq.spark.writing import BatchWriter, StreamWriter

NAME = "rocketmq"


class RocketMQDataSource(DataSource):
    """RocketMQ's topics as tables and streams.

    Spark finds it by its name, through the package `pyspark_rocketmq`, or is told of it by
    `spark.dataSource.register(RocketMQDataSource)`.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._parsed = parse(dict(options))

    @classmethod
    def name(cls) -> str:
        """What stands in `format(...)`."""
        return NAME

    def schema(self) -> StructType:
        """All columns, or those that the options name."""
        source = self._parsed.source
        wanted = named_columns(source.columns)
        if not source.include_properties:
            wanted.remove("properties")
        return default_schema(source, wanted)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Who reads once."""
        check_source(self._parsed, streaming=False)
        return BatchReader(self._parsed, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Who reads on and on."""
        check_source(self._parsed, streaming=True)
        return StreamReader(self._parsed, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Who writes."""
        return BatchWriter(self._parsed, check_sink(self._parsed), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Who writes on and on."""
        return StreamWriter(self._parsed, check_sink(self._parsed), schema, overwrite=overwrite)


class BatchReader(DataSourceReader):
    """Reads what there is."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._tasks = task_reader(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """What each task reads; settled once for each data frame."""
        return [Ranges(shares) for shares in bounding.batch_ranges(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one task."""
        if not isinstance(partition, Ranges):  # nothing to read: Spark asks for one all the same
            return iter(())
        return self._tasks.read(partition)
