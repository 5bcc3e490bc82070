"""From decoded messages to the record batches that a schema asks for.

A field of the schema is a column of the message, by its name and type, or else a field of the body
where the bodies have a format. `body` itself may be asked for as it is, as text, or as a struct of
the body's fields. What nobody asks for is not decoded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from gantrymq.client.arrow import Rows
from gantrymq.errors import ConfigError, RemoteProtocolError
from gantrymq.spark.bodies import Fit, decoder_of, fit_of
from gantrymq.spark.options import SourceOptions
from gantrymq.spark.schema import COLUMNS, arrow_schema, check_column, schema_of

log = logging.getLogger("gantrymq.spark")

Topics = Callable[[str], str]
_WITH_FIELDS: Final = frozenset(("json", "avro", "protobuf"))


class BadBody(RemoteProtocolError):
    """A body is not of the format that the query says."""

    retriable = False


class Decoded(NamedTuple):
    """Bodies as rows."""

    rows: list[dict[str, Any] | None]
    """None where a body is bad."""
    good: np.ndarray[Any, np.dtype[np.bool_]]


class Projection:
    """What a query wants of messages; what travels to the workers."""

    def __init__(self, source: SourceOptions, schema: StructType) -> None:
        self._source = source
        self._fields = list(schema.fields)
        self._sources = [_source_of(field, source) for field in self._fields]
        self._schema = arrow_schema(schema)
        self._wanted = StructType(
            [
                field
                for field, (kind, _) in zip(self._fields, self._sources, strict=True)
                if kind == "field"
            ]
        )
        self._structs = [
            field.dataType
            for field, (kind, _) in zip(self._fields, self._sources, strict=True)
            if kind == "struct"
        ]
        self._decodes = bool(self._wanted.fields or self._structs)
        if self._decodes or source.body_format in _WITH_FIELDS:
            decoder_of(source)  # its complaints are better heard now than in a task
            self._fit_all()
        self._ready: tuple[Callable[[bytes], Any], Fit] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_ready": None}

    def batch(self, rows: Rows, topics: Topics) -> tuple[pa.RecordBatch, pa.Array | None]:
        """The rows, and which of them to keep, None for all."""
        decoded = self._decode(rows) if self._decodes else None
        arrays = [
            self._array(rows, kind, name, field, decoded, topics)
            for (kind, name), field in zip(self._sources, self._schema, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if self._source.mode != "dropmalformed":
            return batch, None
        if decoded is not None:
            return batch, None if decoded.good.all() else pa.array(decoded.good)
        if "body" in self._schema.names:
            bodies = batch.column("body")
            return batch, bodies.is_valid() if bodies.null_count else None
        return batch, None

    def _array(
        self,
        rows: Rows,
        kind: str,
        name: str,
        field: pa.Field,
        decoded: Decoded | None,
        topics: Topics,
    ) -> pa.Array:
        if kind == "column":
            array = self._bodies(rows) if name == "body" else rows.array(name, topics=topics)
            return array if array.type == field.type else array.cast(field.type)
        if kind == "text":
            return _texts(self._bodies(rows))
        assert decoded is not None
        if kind == "corrupt":
            return self._corrupt(rows, decoded, field)
        if kind == "struct":
            return pa.array(decoded.rows, field.type)
        return pa.array([row and row[name] for row in decoded.rows], field.type)

    def _bodies(self, rows: Rows) -> pa.Array:
        if self._source.mode == "failfast":
            return rows.array("body")
        bodies = rows.array("body", bad_body="null")
        if bodies.null_count:
            for row in np.flatnonzero(bodies.is_null().to_numpy(zero_copy_only=False)).tolist():
                log.warning(
                    "%s @ %d: its body is compressed and cannot be opened", *rows.where(row)
                )
        return bodies

    def _corrupt(self, rows: Rows, decoded: Decoded, field: pa.Field) -> pa.Array:
        bodies = self._bodies(rows)
        array = _texts(bodies) if field.type == pa.string() else bodies
        return pa.compute.if_else(pa.array(decoded.good), pa.scalar(None, field.type), array)

    # --- bodies with fields -----------------------------------------------------------------------

    def _fit_all(self) -> Fit:
        fields = list(self._wanted.fields)
        for struct in self._structs:
            assert isinstance(struct, StructType)
            fields += struct.fields
        return fit_of(StructType(fields))

    def _decode(self, rows: Rows) -> Decoded:
        if self._ready is None:
            self._ready = decoder_of(self._source), self._fit_all()
        decode, fit = self._ready
        bodies = self._bodies(rows).to_pylist()
        found: list[dict[str, Any] | None] = []
        good = np.ones(len(bodies), bool)
        for number, body in enumerate(bodies):
            try:
                found.append(fit(decode(_whole(body))))
            except ValueError as error:
                if self._source.mode == "failfast":
                    raise self._bad(rows, number, error) from error
                found.append(None)
                good[number] = False
        return Decoded(found, good)

    def _bad(self, rows: Rows, number: int, error: ValueError) -> BadBody:
        queue, offset = rows.where(number)
        kind = self._source.body_format
        return BadBody(f"{queue} @ {offset:,}: the body is no {kind} of the schema: {error}")


def _whole(body: bytes | None) -> bytes:
    if body is None:
        raise ValueError("it is compressed and cannot be opened")
    return body


def _source_of(field: StructField, source: SourceOptions) -> tuple[str, str]:
    """Where a field of the schema comes from."""
    name, kind = field.name, field.dataType
    with_fields = source.body_format in _WITH_FIELDS
    if name.lower() == "body" and isinstance(kind, StructType) and with_fields:
        return "struct", name
    if name.lower() == "body" and isinstance(kind, StringType) and source.body_format == "text":
        return "text", name
    if with_fields and name == source.column_name_of_corrupt_record:
        if not isinstance(kind, StringType | BinaryType):
            raise ConfigError(f"column {name} has to be string or binary")
        return "corrupt", name
    if with_fields and name.lower() not in COLUMNS:
        return "field", name
    return "column", check_column(field)


def default_schema(source: SourceOptions, names: Iterable[str]) -> StructType:
    """The schema of a query that gives none."""
    if source.body_format in _WITH_FIELDS:
        raise ConfigError(
            f"bodyFormat={source.body_format} needs a schema that names the fields of bodies, such"
            f' as .schema("id bigint, name string, queue_offset bigint")'
        )
    schema = schema_of(list(names))
    if source.body_format == "text":
        for field in schema.fields:
            if field.name == "body":
                field.dataType = StringType()
    return schema


def _texts(bodies: pa.Array) -> pa.Array:
    """Bytes as text; what is not UTF-8 in them becomes U+FFFD."""
    try:
        return bodies.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [
            None if one is None else one.decode("utf-8", "replace") for one in bodies.to_pylist()
        ]
        return pa.array(texts, pa.string())
