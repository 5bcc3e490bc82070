"""The columns of messages in Spark's types, and what of them a query wants.

A schema that the user gives is the projection: only what it names is decoded and leaves the worker.
What is handed to Spark has to have exactly the Arrow types that Spark makes of the schema, so each
column is cast where they differ, which costs nothing where they do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from gantrymq.client.arrow import TYPES
from gantrymq.errors import ConfigError
from gantrymq.settings import nearest

_OF_ARROW: Final[Mapping[Any, DataType]] = {
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.bool_(): BooleanType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
    pa.map_(pa.string(), pa.string()): MapType(StringType(), StringType()),
}

COLUMNS: Final[Mapping[str, DataType]] = {name: _OF_ARROW[kind] for name, kind in TYPES.items()}
"""Every column of a message with its type, in their order."""


_SIMPLE: Final[Mapping[str, DataType]] = {
    kind.simpleString(): kind
    for kind in (
        StringType(), IntegerType(), LongType(), DoubleType(), BooleanType(), TimestampType()
    )
}  # fmt: skip


def schema_of(names: Sequence[str]) -> StructType:
    """The schema of these columns."""
    return StructType([StructField(name, COLUMNS[name]) for name in names])


def plain_schema(text: str) -> StructType:
    """The schema that `name type, name type` says; Spark's own way needs a session."""
    pairs = (part.split() for part in text.split(","))
    return StructType([StructField(name, _SIMPLE[kind]) for name, kind in pairs])


def named_columns(text: str) -> list[str]:
    """The columns that the option `columns` names; all of them when it is empty."""
    found = [canonical(part.strip()) for part in text.split(",") if part.strip()]
    if len(set(found)) < len(found):
        raise ConfigError(f"option columns: {text!r} names a column twice")
    return found or list(COLUMNS)


def canonical(name: str) -> str:
    """The column of that name, whatever its case."""
    if name.lower() not in COLUMNS:
        raise ConfigError(
            f"messages have no column {name!r}{nearest(name.lower(), COLUMNS)}; they have"
            f" {', '.join(COLUMNS)}"
        )
    return name.lower()


def arrow_schema(schema: StructType) -> pa.Schema:
    """What record batches of `schema` have to look like for Spark."""
    return to_arrow_schema(schema, timezone="UTC")


def check_column(field: StructField) -> str:
    """The column that a field of the user's schema means, if its type fits."""
    name = canonical(field.name)
    if _plain(field.dataType) != _plain(COLUMNS[name]):
        raise ConfigError(
            f"column {name} is {COLUMNS[name].simpleString()}, and the schema wants"
            f" {field.dataType.simpleString()}: read it as it is, and cast it in the query"
        )
    return name


def _plain(kind: DataType) -> str:
    return kind.simpleString()
