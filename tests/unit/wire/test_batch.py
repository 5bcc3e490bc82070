"""Batch bodies: what is refused, and splitting by size."""

from __future__ import annotations

import pytest

from gantrymq.errors import LocalProtocolError, RemoteProtocolError
from gantrymq.wire import batch
from gantrymq.wire.batch import BatchMessage

MESSAGES = [BatchMessage(b"one", b"TAGS\x01a\x02"), BatchMessage(b"", flag=-1), BatchMessage(b"3")]
RAW = batch.encode(MESSAGES)


def damaged(at: int, value: int, width: int = 4) -> bytes:
    return RAW[:at] + value.to_bytes(width, "big", signed=value < 0) + RAW[at + width :]


def test_messages_come_back_from_any_kind_of_buffer() -> None:
    for buffer in (RAW, bytearray(RAW), memoryview(RAW)):
        assert batch.decode(buffer) == MESSAGES
    assert batch.decode(b"") == []
    assert batch.encode([]) == b""
    assert MESSAGES[0].properties == {"TAGS": "a"}


def test_magic_and_crc_are_not_looked_at() -> None:
    assert batch.decode(damaged(4, -626843481)) == MESSAGES
    assert batch.decode(damaged(8, 12345)) == MESSAGES


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (RAW[:21], "at byte 0 of 21: only 21 bytes are left and 22 are the least"),
        (RAW + b"\0", f"at byte {len(RAW)} of {len(RAW) + 1}: only 1 bytes are left"),
        (RAW[:-1], f"it says 23 bytes and {22} are left"),
        (damaged(0, 0), "it says 0 bytes"),
        (damaged(0, -5), "it says -5 bytes"),
        (damaged(0, 2**31 - 1), "it says 2147483647 bytes"),
        (damaged(16, -1), "it says a body of -1 bytes"),
        (damaged(16, 12), "it says a body of 12 bytes and 32 in all"),
        (damaged(16, 2), "do not make 32 bytes"),
        (damaged(23, 8, 2), "properties of 8 bytes and a body of 3 bytes do not make 32 bytes"),
    ],
)
def test_broken_batches_are_refused_with_place_and_number(raw: bytes, said: str) -> None:
    with pytest.raises(RemoteProtocolError, match=said):
        batch.decode(raw)


def test_what_cannot_be_written_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="message 1 of the batch has 32768 bytes"):
        batch.encode([MESSAGES[0], BatchMessage(b"", bytes(32_768))])
    with pytest.raises(LocalProtocolError, match="flag 2147483648"):
        batch.encode([BatchMessage(b"", flag=2**31)])


def test_a_batch_is_split_where_it_would_grow_too_large() -> None:
    messages = [BatchMessage(bytes(size)) for size in (10, 10, 10, 50, 1, 1)]
    sizes = [[m.size for m in part] for part in batch.split(messages, 72)]
    assert sizes == [[32, 32], [32], [72], [23, 23]]
    assert [len(batch.encode(part)) for part in batch.split(messages, 72)] == [64, 32, 72, 46]
    assert list(batch.split([], 72)) == []
    assert list(batch.split(messages)) == [messages]


def test_a_message_larger_than_any_batch_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="takes 73 bytes in a batch body; the limit is 72"):
        list(batch.split([BatchMessage(bytes(51))], 72))
