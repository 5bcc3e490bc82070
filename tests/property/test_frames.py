"""Whatever is written is read again; whatever bytes come, only values or our own error come out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gantrymq.errors import RemoteProtocolError
from gantrymq.wire import fastjson
from gantrymq.wire.codes import Language
from gantrymq.wire.command import Command, HeaderType
from gantrymq.wire.connection import Connection

INT32 = st.integers(-(2**31), 2**31 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)

COMMANDS = st.builds(
    Command,
    code=st.one_of(st.integers(0, 400), INT16, INT32),
    opaque=INT32,
    flag=st.one_of(st.integers(0, 3), INT32),
    remark=st.none() | TEXT,
    fields=st.dictionaries(TEXT, TEXT, max_size=8),
    body=st.builds(bytes.__mul__, st.binary(max_size=100), st.sampled_from([1, 1, 1, 1000])),
    language=st.sampled_from(Language),
    version=st.integers(0, 700),
)
TYPES = st.sampled_from(HeaderType)


@given(
    st.lists(st.tuples(COMMANDS, TYPES), max_size=5), st.lists(st.integers(1, 200_000), max_size=30)
)
def test_commands_survive_any_split(
    sent: list[tuple[Command, HeaderType]], cuts: list[int]
) -> None:
    stream = b"".join(
        bytes(part)
        for command, kind in sent
        for part in Connection(header_type=kind).encode(command)
    )
    connection, received, at = Connection(), [], 0
    for cut in [*cuts, len(stream)]:
        received += connection.feed(stream[at : at + cut])
        at += cut
    assert received == [command for command, _ in sent]
    assert not connection.mid_frame


@given(st.binary(max_size=400))
def test_any_bytes_give_commands_or_our_error(data: bytes) -> None:
    connection = Connection(limit=4096)
    try:
        for command in connection.feed(data):
            assert isinstance(command, Command)
    except RemoteProtocolError as error:
        assert str(error)


@given(COMMANDS, TYPES, st.data())
def test_a_damaged_frame_gives_commands_or_our_error(
    command: Command, kind: HeaderType, data: st.DataObject
) -> None:
    frame = bytearray(b"".join(Connection(header_type=kind).encode(command)))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, min(len(frame), 400) - 1))
        frame[at] = data.draw(st.integers(0, 255))
    try:
        for received in Connection().feed(frame):
            assert isinstance(received, Command)
    except RemoteProtocolError as error:
        assert str(error)


KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | KEYS
OBJECT_KEYS = st.dictionaries(KEYS, SCALARS, max_size=3).map(fastjson.ObjectKey.of)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(KEYS | OBJECT_KEYS, inner, max_size=4)
    ),
    max_leaves=20,
)


@given(TREES, st.booleans())
def test_json_trees_survive_writing_and_reading(tree: object, bare: bool) -> None:
    assert fastjson.loads(fastjson.dumps(tree, bare_numbers=bare)) == tree


@given(st.text(alphabet="{}[]:,'\"\\ua01-.eLNnull$ ", max_size=60))
def test_any_text_gives_a_tree_or_our_error(text: str) -> None:
    try:
        fastjson.loads(text.encode())
    except RemoteProtocolError as error:
        assert str(error)
