"""Bodies as rows: text, JSON, Avro or protobuf becomes the columns that a schema names.

Each body is decoded to Python's own values, which are then fitted to the types of the schema as
Spark's readers do it: numbers have to be in range, dates and times are text or numbers, what is no
text becomes its JSON where text is wanted. A body that cannot be decoded, or does not fit, is bad;
what is done with it is for `mode` to say.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from gantrymq.errors import ConfigError
from gantrymq.spark.options import SourceOptions

Decoder = Callable[[bytes], Any]
"""From a body to a mapping of fields, or `ValueError`."""

Fit = Callable[[Any], Any]
"""From a decoded value to one of the column's type, or `ValueError`."""

_BITS: Final[Mapping[type[DataType], int]] = {
    ByteType: 8,
    ShortType: 16,
    IntegerType: 32,
    LongType: 64,
}
_SHOWN: Final = 60


def decoder_of(source: SourceOptions) -> Decoder:
    """What decodes bodies of the format that the options name."""
    if source.body_format == "json":
        return _json
    if source.body_format == "avro":
        return _avro(source)
    if source.body_format == "protobuf":
        return _protobuf(source)
    raise ConfigError(f"bodies of bodyFormat={source.body_format} have no fields")


def _json(body: bytes) -> Any:
    found = orjson.loads(body)
    if not isinstance(found, dict):
        raise _misfit(found, "no JSON object")
    return found


def _avro(source: SourceOptions) -> Decoder:
    if source.avro_schema is None:
        raise ConfigError("bodyFormat=avro needs the option avroSchema")
    try:
        import fastavro
    except ImportError as error:
        raise ConfigError(
            f"bodyFormat=avro needs fastavro ({error}): pip install fastavro"
        ) from error
    try:
        schema = fastavro.parse_schema(json.loads(source.avro_schema))
    except (ValueError, fastavro.schema.SchemaParseException) as error:
        raise ConfigError(f"option avroSchema: it is no schema: {error}") from error

    def decode(body: bytes) -> Any:
        stream = io.BytesIO(body)
        try:
            found = fastavro.schemaless_reader(stream, schema, None)
        except Exception as error:  # whatever fastavro stumbles over in bytes that are none of its
            raise ValueError(f"no Avro of that schema: {error!r}") from error
        if rest := len(body) - stream.tell():
            raise ValueError(f"{rest} bytes are left over")
        return found if isinstance(found, dict) else {"value": found}

    return decode


def _protobuf(source: SourceOptions) -> Decoder:
    from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

    if source.protobuf_descriptor is None or source.protobuf_message is None:
        raise ConfigError(
            "bodyFormat=protobuf needs the options protobufDescriptor and protobufMessage"
        )
    files = descriptor_pb2.FileDescriptorSet()
    pool = descriptor_pool.DescriptorPool()
    try:
        files.ParseFromString(_descriptor_bytes(source.protobuf_descriptor))
        for file in files.file:
            pool.Add(file)
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(source.protobuf_message))
    except (message.DecodeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"options protobufDescriptor and protobufMessage={source.protobuf_message}: {error}"
        ) from error

    def decode(body: bytes) -> Any:
        try:
            return _plain(kind.FromString(body))
        except message.DecodeError as error:
            raise ValueError(f"no {source.protobuf_message}: {error}") from error

    return decode


def _descriptor_bytes(text: str) -> bytes:
    path = Path(text)
    if len(text) < 4096 and path.exists():
        return path.read_bytes()
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ConfigError(
            f"option protobufDescriptor: {text!r:.80} is neither a file nor base64: {error}"
        ) from error


def _plain(message: Any) -> dict[str, Any]:
    """A protobuf message as a mapping; a field that was not set and can say so is None."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            found[field.name] = None
            continue
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            inner = field.message_type.fields_by_name["value"].message_type
            found[field.name] = {k: _plain(v) if inner else v for k, v in value.items()}
        elif field.is_repeated:
            found[field.name] = [_value(field, each) for each in value]
        else:
            found[field.name] = _value(field, value)
    return found


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _plain(value)
    if field.enum_type is not None:
        name = field.enum_type.values_by_number.get(value)
        return value if name is None else name.name
    return value


# --- fitting --------------------------------------------------------------------------------------


def fit_of(kind: DataType) -> Fit:
    """What fits decoded values to a type of Spark's."""
    if isinstance(kind, StructType):
        return partial(_struct, {field.name: fit_of(field.dataType) for field in kind.fields})
    if isinstance(kind, ArrayType):
        return partial(_array, fit_of(kind.elementType))
    if isinstance(kind, MapType):
        return partial(_map, fit_of(kind.keyType), fit_of(kind.valueType))
    if type(kind) in _BITS:
        return partial(_whole, 1 << (_BITS[type(kind)] - 1))
    if isinstance(kind, DecimalType):
        return partial(_decimal, kind)
    if isinstance(kind, TimestampType):
        return partial(_time, UTC)
    if isinstance(kind, TimestampNTZType):
        return partial(_time, None)
    found = _FITS.get(type(kind))
    if found is None:
        raise ConfigError(f"bodies cannot be read as {kind.simpleString()}")
    return found


def _struct(fits: Mapping[str, Fit], value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise _misfit(value, "no object")
    return {name: _named(name, fit, value.get(name)) for name, fit in fits.items()}


def _named(name: str, fit: Fit, value: Any) -> Any:
    if value is None:
        return None
    try:
        return fit(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _array(fit: Fit, value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise _misfit(value, "no list")
    return [None if each is None else fit(each) for each in value]


def _map(key: Fit, fit: Fit, value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise _misfit(value, "no object")
    return [(key(k), None if each is None else fit(each)) for k, each in value.items()]


def _whole(limit: int, value: Any) -> int:
    if type(value) is not int:
        raise _misfit(value, "no whole number")
    if not -limit <= value < limit:
        raise _misfit(value, f"out of range, which ends at {limit - 1}")
    return value


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


_NUMBERS: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def _float(value: Any) -> float:
    if type(value) in (int, float):
        return float(value)
    if value in _NUMBERS:
        return _NUMBERS[value]
    raise _misfit(value, "no number")


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise _misfit(value, "neither true nor false")
    return value


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise _misfit(value, "no base64")
    return base64.b64decode(value, validate=True)


def _decimal(kind: DecimalType, value: Any) -> Decimal:
    try:
        if isinstance(value, bool):
            raise _misfit(value, "no number")
        found = Decimal(str(value)).quantize(Decimal(1).scaleb(-kind.scale))
    except InvalidOperation:
        raise _misfit(value, "no number") from None
    if len(found.as_tuple().digits) > kind.precision:
        raise _misfit(value, f"too long for {kind.simpleString()}")
    return found


def _time(zone: Any, value: Any) -> datetime:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    elif type(value) in (int, float):
        value = datetime.fromtimestamp(value, UTC)
    if not isinstance(value, datetime):
        raise _misfit(value, "no time")
    if zone is None:
        return value.replace(tzinfo=None)
    return value if value.tzinfo is not None else value.replace(tzinfo=zone)


def _date(value: Any) -> date:
    if isinstance(value, str):
        return date.fromisoformat(value)
    if not isinstance(value, date):
        raise _misfit(value, "no date")
    return value


def _misfit(value: Any, why: str) -> ValueError:
    return ValueError(f"{str(value)[:_SHOWN]!r} is {why}")


_FITS: Final[Mapping[type[DataType], Fit]] = {
    StringType: _text,
    FloatType: _float,
    DoubleType: _float,
    BooleanType: _truth,
    BinaryType: _bytes,
    DateType: _date,
}
