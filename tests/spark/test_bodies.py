"""Bodies with fields, and what becomes of those that have none."""

from __future__ import annotations

import base64
import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

GOOD = b'{"id": 1, "name": "beer", "price": "2.50", "at": "2026-11-19T20:00:00Z", "tags": ["a"]}'
OTHER = b'{"id": 2, "name": {"de": "Bier"}, "day": "2026-11-19", "extra": true}'
BAD = [b"{", b"[]", b'{"id": "two"}', b'{"id": 99999999999999999999}', b"\xff\xfe"]
SCHEMA = (
    "queue_offset bigint, id bigint, name string, price decimal(10,2), at timestamp, day date,"
    " body struct<tags:array<string>>, _corrupt_record string"
)


def test_json_by_mode(ours):
    ours.make(queues=1)
    ours.send([GOOD, OTHER, *BAD])
    reader = ours.reader(bodyFormat="json").schema(SCHEMA)
    rows = reader.load().orderBy("queue_offset").collect()
    assert len(rows) == 2 + len(BAD)
    assert rows[0].asDict() == {
        "queue_offset": 0,
        "id": 1,
        "name": "beer",
        "price": Decimal("2.50"),
        "at": datetime(2026, 11, 19, 20, tzinfo=UTC).astimezone().replace(tzinfo=None),
        "day": None,
        "body": (["a"],),
        "_corrupt_record": None,
    }
    assert (rows[1].name, rows[1].day) == ('{"de":"Bier"}', date(2026, 11, 19))
    for row, body in zip(rows[2:], BAD, strict=True):
        assert (row.id, row.name, row._corrupt_record) == (
            None,
            None,
            body.decode("utf-8", "replace"),
        )

    assert reader.option("mode", "dropmalformed").load().count() == 2
    with pytest.raises(Exception, match=rf"{ours.topic}\S* @ 2: the body is no json of the schema"):
        reader.option("mode", "failfast").load().collect()


def test_text(ours):
    ours.make(queues=1)
    ours.send(["Grüße".encode(), b"\xff"])
    rows = ours.read(bodyFormat="text", columns="body").collect()
    assert sorted(row.body for row in rows) == ["Grüße", "\ufffd"]


def test_avro(ours):
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "note", "type": ["null", "string"]},
        ],
    }
    at = datetime(2026, 11, 19, 20, tzinfo=UTC)
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, {"id": 7, "at": at, "note": None})
    ours.make(queues=1)
    ours.send([stream.getvalue(), stream.getvalue() + b"!", b"\x01"])
    reader = ours.reader(bodyFormat="avro", avroSchema=json.dumps(schema))
    rows = reader.schema("id bigint, at timestamp, note string, _corrupt_record binary").load()
    good, long, short = rows.collect()
    assert (good.id, good.note, good._corrupt_record) == (7, None, None)
    assert good.at.timestamp() == at.timestamp()
    assert (long.id, bytes(long._corrupt_record)) == (None, stream.getvalue() + b"!")
    assert (short.id, bytes(short._corrupt_record)) == (None, b"\x01")


def test_protobuf(ours):
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    kind = file.message_type.add(name="Order")
    kind.field.add(name="id", number=1, type=3, label=1)
    kind.field.add(name="tags", number=2, type=9, label=3)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    ours.make(queues=1)
    ours.send([made(id=3, tags=["a", "b"]).SerializeToString(), b"\xff\xff"])
    files = descriptor_pb2.FileDescriptorSet(file=[file])
    described = base64.b64encode(files.SerializeToString()).decode()
    reader = ours.reader(
        bodyFormat="protobuf", protobufDescriptor=described, protobufMessage="shop.Order"
    )
    frame = reader.schema("id bigint, note string, body struct<tags:array<string>>").load()
    assert [tuple(row) for row in frame.collect()] == [(3, None, (["a", "b"],)), (None, None, None)]


@pytest.mark.parametrize(
    ("options", "schema", "complaint"),
    [
        ({"bodyFormat": "json"}, None, "bodyFormat=json needs a schema"),
        ({"bodyFormat": "xml"}, "body binary", "option bodyFormat: 'xml' is none of binary, text"),
        ({"bodyFormat": "avro"}, "id int", "bodyFormat=avro needs the option avroSchema"),
        ({"bodyFormat": "avro", "avroSchema": "{"}, "id int", "option avroSchema: it is no schema"),
        ({"bodyFormat": "protobuf"}, "id int", "needs the options protobufDescriptor and"),
        ({}, "id int", "messages have no column 'id'"),
        ({}, "body string", "column body is binary, and the schema wants string"),
        ({"bodyFormat": "json"}, "id interval day", "bodies cannot be read as interval day"),
    ],
)
def test_what_cannot_be_decoded_is_said_at_once(ours, options, schema, complaint):
    ours.make(queues=1)
    reader = ours.reader(**options)
    with pytest.raises(Exception, match=complaint):
        (reader.schema(schema) if schema else reader).load().count()
