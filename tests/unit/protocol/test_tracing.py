from __future__ import annotations

import pytest

from gantrymq.errors import LocalProtocolError, RemoteProtocolError
from gantrymq.protocol.tracing import (
    ConsumeBegun,
    ConsumeEnded,
    Recalled,
    Sent,
    TracedType,
    TraceRecord,
    TransactionEnded,
    read_records,
    write_records,
)

SENT = Sent(
    time_ms=1, region="R", group="PG", topic="T", message_id="0A", tags="TagA", keys="k1 k2",
    store_host="10.0.0.1:10911", body_length=5, cost_ms=3, type=TracedType.DELAYED,
    offset_id="0B", success=True,
)  # fmt: skip
RECORDS: list[tuple[TraceRecord, str]] = [
    (SENT, "Pub|1|R|PG|T|0A|TagA|k1 k2|10.0.0.1:10911|5|3|3|0B|true"),
    (
        ConsumeBegun(
            time_ms=1, region="R", group="CG", request_id="q", message_id="0A", retries=2, keys="k"
        ),
        "SubBefore|1|R|CG|q|0A|2|k",
    ),
    (
        ConsumeEnded(
            request_id="q", message_id="0A", cost_ms=3, success=False, keys="k", context_code=1,
            time_ms=9, group="CG",
        ),
        "SubAfter|q|0A|3|false|k|1|9|CG",
    ),
    (
        TransactionEnded(
            time_ms=1, region="R", group="PG", topic="T", message_id="0A", tags=None, keys=None,
            store_host="h", type=TracedType.COMMITTED, transaction_id="0A",
            state="COMMIT_MESSAGE", from_check=True,
        ),
        "EndTransaction|1|R|PG|T|0A|null|null|h|2|0A|COMMIT_MESSAGE|true",
    ),
    (
        Recalled(time_ms=1, region="R", group="PG", topic="T", message_id="0A", success=True),
        "Recall|1|R|PG|T|0A|true",
    ),
]  # fmt: skip


def line(text: str) -> str:
    return text.replace("|", "\x01") + "\x02"


@pytest.mark.parametrize(("record", "text"), RECORDS)
def test_each_kind(record: TraceRecord, text: str) -> None:
    assert write_records([record]) == line(text)
    assert list(read_records(line(text))) == [record]


def test_several() -> None:
    everything = [record for record, _ in RECORDS]
    assert list(read_records(write_records(everything))) == everything
    assert list(read_records("")) == []


@pytest.mark.parametrize(
    ("text", "offset_id", "success"),
    [
        ("Pub|1|R|PG|T|0A|t|k|h|5|3|0", None, True),
        ("Pub|1|R|PG|T|0A|t|k|h|5|3|0|false", None, False),
        ("Pub|1|R|PG|T|0A|t|k|h|5|3|0|0B|false", "0B", False),
        ("Pub|1|R|PG|T|0A|t|k|h|5|3|0|0B|false|10.0.0.9", "0B", False),
    ],
)
def test_sends_as_old_and_new_clients_report_them(
    text: str, offset_id: str | None, success: bool
) -> None:
    (record,) = read_records(line(text))
    assert isinstance(record, Sent)
    assert (record.offset_id, record.success) == (offset_id, success)


def test_cloud_clients_end_without_time_and_group() -> None:
    (record,) = read_records(line("SubAfter|q|0A|3|true|k|0"))
    assert isinstance(record, ConsumeEnded)
    assert (record.time_ms, record.group) == (0, None)


def test_kinds_that_nobody_knows_are_passed_over() -> None:
    assert list(read_records(line("New|1|2") + write_records([SENT]))) == [SENT]


@pytest.mark.parametrize("text", ["Pub", "Pub|x|R|PG|T|0A|t|k|h|5|3|0", "Recall|1|R"])
def test_records_that_cannot_be_read(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="trace record"):
        list(read_records(line(text)))


def test_separators_are_not_written_as_text() -> None:
    bad = Recalled(time_ms=1, region="a\x01b", group="", topic="", message_id="", success=True)
    with pytest.raises(LocalProtocolError, match="cannot hold 0x01"):
        write_records([bad])
