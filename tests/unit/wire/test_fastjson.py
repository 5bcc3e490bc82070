"""JSON as Java writes and accepts it."""

from __future__ import annotations

import pytest

from gantrymq.errors import LocalProtocolError, RemoteProtocolError
from gantrymq.wire import fastjson
from gantrymq.wire.fastjson import ObjectKey

QUEUE = {"brokerName": "b", "queueId": 1, "topic": "t"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{0:"10.0.0.1:10911",1:"x"}', {"0": "10.0.0.1:10911", "1": "x"}),
        (b'{"a":{-3:4}}', {"a": {"-3": 4}}),
        (b'{{"brokerName":"b","queueId":1,"topic":"t"}:42}', {ObjectKey.of(QUEUE): 42}),
        (b"{'a':'it''s'}".replace(b"''", b"\\'"), {"a": "it's"}),
        (b"{a:1,b_2:[1,2,],}", {"a": 1, "b_2": [1, 2]}),
        (b'{"$ref":"$.a",}', {"$ref": "$.a"}),
        (
            b'[1,-2.5,1E20,true,false,null,NaN,"\\u00e9\\x41\\n\\/",]',
            [1, -2.5, 1e20, True, False, None, None, "éA\n/"],
        ),
        (b'["\\ud83d\\ude00",]', ["😀"]),
        (b"[1L,2.0D,.5]", [1, 2.0, 0.5]),
        (b" [ ] ", []),
        (b"[,]".replace(b",", b""), []),
    ],
)
def test_javas_dialect_is_read(text: bytes, value: object) -> None:
    assert fastjson.loads(text) == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "a value is missing"),
        (b"{", "a name is missing"),
        (b"{a", "a colon is missing"),
        (b"{a:1 b:2}", "a comma or }"),
        (b"[1 2]", "a comma or ]"),
        (b'{"a', "a string that does not end"),
        (b'"\\q"', "an escape nobody knows"),
        (b'["\\u12"]', "an escape nobody knows"),
        (b"[undefined]", "'undefined' has no meaning"),
        (b"[1,] x", "text after the end"),
        (b"[" * 100 + b"]" * 100 + b",", "nesting deeper"),
        (b"{{{a:1}:1}:2}", "plain names"),
        (b"{{a:[1]}:2}", "flat"),
        (b'["\\ud83d",]', "half a surrogate"),
        (b"[" + b"9" * 50 + b",]", "more than 40 digits"),
        (b"[1." + b"9" * 500 + b",]", "more than 400 digits"),
        (b"{\xff:1}", "not UTF-8"),
    ],
)
def test_what_is_no_json_is_refused_with_the_place(text: bytes, says: str) -> None:
    with pytest.raises(RemoteProtocolError, match=says):
        fastjson.loads(text)


def test_a_hostile_depth_ends_in_our_error() -> None:
    for text in (b"[" * 100_000, b"{a:" * 100_000, b"{" * 100_000):
        with pytest.raises(RemoteProtocolError, match="nesting deeper"):
            fastjson.loads(text)


def test_strict_json_with_sorted_keys_is_written() -> None:
    assert fastjson.dumps({"b": {1: "x", 0: "y"}, "a": None}) == b'{"a":null,"b":{"0":"y","1":"x"}}'


def test_object_keys_are_written_as_java_writes_them() -> None:
    tree = {"offsetTable": {ObjectKey.of(QUEUE): 42}, "a": 'q"\u0001é'}
    text = fastjson.dumps(tree)
    assert text.decode() == (
        '{"a":"q\\"\\u0001é","offsetTable":{{"brokerName":"b","queueId":1,"topic":"t"}:42}}'
    )
    assert fastjson.loads(text) == tree


def test_bare_numbers_are_for_old_peers() -> None:
    tree = {"brokerAddrs": {0: "x", "1": "y"}, "name": [1, {"2": ()}]}
    text = fastjson.dumps(tree, bare_numbers=True)
    assert text == b'{"brokerAddrs":{"1":"y",0:"x"},"name":[1,{"2":[]}]}'
    assert fastjson.loads(text) == {"brokerAddrs": {"0": "x", "1": "y"}, "name": [1, {"2": []}]}


@pytest.mark.parametrize("value", [{"a": object()}, [object()], {ObjectKey(): object()}, "\ud800"])
def test_what_json_cannot_hold_is_our_own_error(value: object) -> None:
    with pytest.raises(LocalProtocolError):
        fastjson.dumps(value)


def test_a_cycle_is_our_own_error() -> None:
    cycle: dict[object, object] = {ObjectKey(): 1}
    cycle["self"] = cycle
    with pytest.raises(LocalProtocolError, match="deeper"):
        fastjson.dumps(cycle)


def test_object_keys_hash_by_value() -> None:
    assert ObjectKey.of({"b": 1, "a": 2}) == ObjectKey.of({"a": 2, "b": 1})
    assert ObjectKey.of(QUEUE).members() == QUEUE
