"""Headers in both encodings, and all that peers of other languages do to them."""

from __future__ import annotations

import pickle

import orjson
import pytest

from gantrymq.errors import LocalProtocolError, RemoteProtocolError
from gantrymq.wire import versions
from gantrymq.wire.codes import Language, RequestCode, ResponseCode
from gantrymq.wire.command import (
    Command,
    HeaderType,
    decode_binary,
    decode_json,
    encode_header,
)


def header(**members: object) -> bytes:
    return orjson.dumps(members)


def test_json_keys_are_sorted_and_absent_members_left_out() -> None:
    _, text = encode_header(Command(105, opaque=7), HeaderType.JSON)
    assert text == (
        b'{"code":105,"flag":0,"language":"PYTHON","opaque":7,'
        b'"serializeTypeCurrentRPC":"JSON","version":513}'
    )


def test_an_empty_remark_is_written_as_java_does() -> None:
    _, text = encode_header(Command(35, opaque=1, remark=""), HeaderType.JSON)
    assert b'"remark":""' in text


@pytest.mark.parametrize("code", [200050, 0x8000, -0x8001])
def test_codes_that_sixteen_bits_cannot_hold_go_as_json(code: int) -> None:
    header_type, text = encode_header(Command(code), HeaderType.BINARY)
    assert header_type is HeaderType.JSON
    assert decode_json(text).code == code


def test_absent_members_have_javas_meaning() -> None:
    command = decode_json(b"{}")
    assert (command.code, command.opaque, command.flag, command.version) == (0, 0, 0, 0)
    assert command.language == Language.JAVA
    assert command.remark is None
    assert command.fields == {}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"a": 1, "b": True, "c": 1.5, "d": "x", "e": None},
            {"a": "1", "b": "true", "c": "1.5", "d": "x"},
        ),
        ({}, {}),
        (None, {}),
    ],
)
def test_scalars_in_fields_become_text(fields: object, expected: dict[str, str]) -> None:
    assert decode_json(header(code=1, extFields=fields)).fields == expected


def test_numbers_may_come_as_text_and_the_remark_as_a_number() -> None:
    command = decode_json(
        header(code="11", opaque="-3", flag=1, remark=5, language="go", version=1)
    )
    assert (command.code, command.opaque, command.remark) == (11, -3, "5")
    assert command.language == Language.GO


def test_fastjson_headers_are_read() -> None:
    command = decode_json(b"{code:11,'opaque':3,extFields:{topic:'T',},}")
    assert (command.code, command.opaque, command.fields) == (11, 3, {"topic": "T"})


@pytest.mark.parametrize("language", ["COBOL", 3, ["GO"]])
def test_a_language_nobody_knows_is_other(language: object) -> None:
    assert decode_json(header(code=1, language=language)).language == Language.OTHER


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "JSON"),
        (b"[]", "not an array"),
        (b"null", "not null"),
        (b'"text"', "not a string"),
        (b"\xff\xfe", "not UTF-8"),
        (b'{"code":', "JSON"),
        (header(code=2**31), "32-bit"),
        (header(code=1, opaque=-(2**31) - 1, flag=0, version=0, language="JAVA"), "32-bit"),
        (header(code="eleven"), "code has to be a 32-bit number"),
        (header(code=True), "code has to be a 32-bit number"),
        (header(code=1.0), "code has to be a 32-bit number"),
        (header(code=1, remark={}), "remark has to be a string"),
        (header(code=1, extFields=[]), "extFields has to be a JSON object"),
        (header(code=1, extFields={"a": {}}), "extFields.a has to be a string"),
    ],
)
def test_what_is_no_header_is_a_remote_error_that_says_why(data: bytes, says: str) -> None:
    with pytest.raises(RemoteProtocolError, match=says):
        decode_json(data)


def test_binary_drops_what_java_drops() -> None:
    command = Command(10, remark="", fields={"a": "1", "empty": "", "": "nameless"})
    _, data = encode_header(command, HeaderType.BINARY)
    decoded = decode_binary(data)
    assert decoded.remark is None
    assert decoded.fields == {"a": "1"}


def test_a_truncated_binary_header_is_refused_at_every_length() -> None:
    command = Command(10, remark="because", fields={"alpha": "1", "beta": "two"})
    _, data = encode_header(command, HeaderType.BINARY)
    assert decode_binary(data) == command
    for end in range(len(data)):
        with pytest.raises(RemoteProtocolError):
            decode_binary(data[:end])


@pytest.mark.parametrize("header_type", HeaderType)
def test_text_that_utf8_cannot_hold_is_our_own_error(header_type: HeaderType) -> None:
    for command in (Command(1, fields={"a": "\ud800"}), Command(1, remark="\udfff")):
        with pytest.raises(LocalProtocolError):
            encode_header(command, header_type)


@pytest.mark.parametrize("member", ["opaque", "flag", "version"])
def test_a_number_too_large_for_binary_is_our_own_error(member: str) -> None:
    command = Command(1)
    setattr(command, member, 2**40)
    with pytest.raises(LocalProtocolError, match="too large"):
        encode_header(command, HeaderType.BINARY)


def test_a_field_name_too_long_for_binary_is_our_own_error() -> None:
    with pytest.raises(LocalProtocolError, match="40000 bytes"):
        encode_header(Command(1, fields={"n" * 40_000: "1"}), HeaderType.BINARY)


def test_a_field_that_is_not_text_is_our_own_error() -> None:
    with pytest.raises(LocalProtocolError):
        encode_header(Command(1, fields={"a": object()}), HeaderType.JSON)  # type: ignore[dict-item]


def test_kinds() -> None:
    assert [(Command(1, flag=f).is_response, Command(1, flag=f).is_oneway) for f in range(4)] == [
        (False, False),
        (True, False),
        (False, True),
        (True, False),
    ]
    assert repr(Command(1, opaque=2, flag=1, remark="no")) == "<response 1 #2 'no' {} +0 B>"
    assert Command(1) != object()


def test_unknown_codes_are_carried_through_and_not_remembered() -> None:
    code = RequestCode(987_654)
    assert (code.name, code, code.known) == ("UNKNOWN_987654", 987_654, False)
    assert pickle.loads(pickle.dumps(code)) == code
    assert RequestCode(987_654) is not code
    assert RequestCode(11) is RequestCode.PULL_MESSAGE
    assert RequestCode.PULL_MESSAGE.known
    assert ResponseCode(-1000) is ResponseCode.RPC_UNKNOWN
    with pytest.raises(ValueError, match="eleven"):
        RequestCode("eleven")


@pytest.mark.parametrize(
    ("release", "number"),
    [
        ((4, 0, 0), 213), ((4, 2, 0), 253), ((4, 9, 4), 401), ((4, 9, 8), 409),
        ((5, 0, 0), 413), ((5, 3, 1), 475), ((5, 5, 0), 513), ((5, 9, 9), 611),
    ],
)  # fmt: skip
def test_version_numbers(release: tuple[int, int, int], number: int) -> None:
    assert versions.ordinal(*release) == number
    assert versions.describe(number) == ".".join(map(str, release))
    assert versions.describe(number - 1).endswith("-SNAPSHOT")


def test_versions_outside_the_list_are_said() -> None:
    assert versions.describe(612) == versions.describe(9999) == "newer than 5.9.9"
    assert versions.describe(37) == "older than 4.0.0 (#37)"
    with pytest.raises(ValueError, match=r"3\.2\.6"):
        versions.ordinal(3, 2, 6)
