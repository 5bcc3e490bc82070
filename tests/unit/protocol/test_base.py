from __future__ import annotations

import copy
import pickle
from dataclasses import field, replace
from enum import IntEnum
from typing import Annotated, Any

import pytest

from gantrymq.errors import LocalProtocolError, NoPermission, RemoteProtocolError, TopicNotFound
from gantrymq.model import MessageQueue
from gantrymq.protocol.base import (
    Buffer,
    Done,
    Form,
    Int,
    Long,
    OpenStrEnum,
    Reply,
    Request,
    TopicRequest,
    declared,
    in_body,
    named,
    of_frame,
    raw_body,
    table,
    whole_body,
)
from gantrymq.wire.codes import RequestCode
from gantrymq.wire.command import RESPONSE, Command


class Color(OpenStrEnum):
    RED = "Red"
    BLUE = "Blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 7


class Outcome(IntEnum):
    GOOD = 0
    FAIR = 19


@declared
class Paint:
    color: Color = Color.RED
    layers: list[Int] = field(default_factory=list)
    label: str | None = named("lbl", default=None)


@declared
class Painted(Reply):
    outcome: Outcome = of_frame("code", default=Outcome.GOOD)
    coats: Int
    seconds: Long | None = None
    body: Buffer = raw_body(default=b"")


@declared
class PaintWall(TopicRequest[Painted]):
    CODE = RequestCode.SEND_MESSAGE_V2
    LONG_CODE = RequestCode.SEND_MESSAGE

    code: RequestCode = of_frame("code", default=RequestCode.SEND_MESSAGE_V2)
    wall_name: str = named("wallName", short="w")
    width: Int = named("width", short="x")
    area: Long = named("area", short="y", default=10)
    wet: bool = named("wet", short="z", default=False)
    ratio: float = 0.5
    level: Level = Level.LOW
    color: Color = Color.RED
    note: str | None = None
    paint: Paint = whole_body(default_factory=Paint)


@declared
class Mix(Request[Done]):
    CODE = RequestCode.HEART_BEAT

    paints: list[Paint] = in_body()
    by_queue: dict[MessageQueue, Long] = in_body(default_factory=dict)
    by_number: dict[Int, str] = in_body(default_factory=dict)
    tags: set[str] = in_body("tagSet", default_factory=set)
    ratio: float = in_body(default=1.0)
    best: Paint | None = in_body(default=None)


WALL = PaintWall(wall_name="north", width=3)
SHORT = {"w": "north", "x": "3", "y": "10", "z": "false", "ratio": "0.5", "level": "1"}


def wall(**changes: str | None) -> PaintWall:
    """The wall of a command with other fields; None leaves a field out."""
    fields = SHORT | {"color": "Red"} | changes
    given = {name: text for name, text in fields.items() if text is not None}
    return PaintWall.from_command(Command(310, fields=given))


def mix(body: str) -> Mix:
    return Mix.from_command(Command(34, body=body.encode()))


class TestHeaders:
    def test_the_short_spelling_is_written(self) -> None:
        command = WALL.command()
        assert command.code == 310
        assert command.fields == SHORT | {"color": "Red"}

    def test_the_long_spelling_goes_with_the_older_code(self) -> None:
        command = replace(WALL, code=RequestCode.SEND_MESSAGE, wet=True).command()
        assert command.code == 10
        assert {"wallName": "north", "width": "3", "area": "10", "wet": "true"}.items() <= (
            command.fields.items()
        )
        back = PaintWall.from_command(command)
        assert (back.code, back.wet) == (RequestCode.SEND_MESSAGE, True)

    def test_codes_that_are_not_its_own(self) -> None:
        with pytest.raises(RemoteProtocolError, match="PaintWall: has no code 11"):
            PaintWall.from_command(Command(11))
        with pytest.raises(LocalProtocolError, match="PaintWall: has no code 11"):
            replace(WALL, code=RequestCode.PULL_MESSAGE).command()

    def test_fields_of_its_own_come_before_inherited_ones(self) -> None:
        fields = replace(WALL, note="n", broker="b", namespace="ns", logical=True).command().fields
        assert list(fields) == [*SHORT, "color", "note", "lo", "ns", "bname"]

    def test_what_is_left_out_has_its_default(self) -> None:
        assert wall(y=None, z=None, ratio=None, level=None, color=None) == WALL

    def test_what_nobody_asked_for_is_passed_over(self) -> None:
        assert wall(unknown="1", AccessKey="k") == WALL

    def test_a_missing_field_is_named(self) -> None:
        with pytest.raises(RemoteProtocolError, match=r"PaintWall: width \(x\): has to be there"):
            wall(x=None)

    @pytest.mark.parametrize("text", ["", "x", "1.0", "1_000", " 1", "0x1", "²", "--1", "1" * 5000])
    def test_texts_that_are_no_numbers(self, text: str) -> None:
        with pytest.raises(RemoteProtocolError, match=r"width \(x\): has to be a whole number"):
            wall(x=text)
        with pytest.raises(RemoteProtocolError, match=r"area \(y\): has to be a whole number"):
            wall(y=text)

    @pytest.mark.parametrize("text", ["0", "-1", "1024", "1025", "+7", "2147483647", "-2147483648"])
    def test_numbers(self, text: str) -> None:
        assert (wall(x=text).width, wall(y=text).area) == (int(text), int(text))

    def test_numbers_that_java_has_no_room_for(self) -> None:
        with pytest.raises(RemoteProtocolError, match="from -2147483648 to 2147483647"):
            wall(x="2147483648")
        with pytest.raises(RemoteProtocolError, match="from -9223372036854775808"):
            wall(y="9223372036854775808")
        assert wall(y="-9223372036854775808").area == -(1 << 63)
        with pytest.raises(LocalProtocolError, match="PaintWall: width: has to be from"):
            replace(WALL, width=1 << 31).command()
        with pytest.raises(LocalProtocolError, match=r"area: has to be .* a number of 301 bits"):
            replace(WALL, area=1 << 300).command()

    def test_values_of_another_type_are_not_sent(self) -> None:
        wrong: Any = "3"
        with pytest.raises(LocalProtocolError, match="width: has to be a whole number, not '3'"):
            replace(WALL, width=wrong).command()
        with pytest.raises(LocalProtocolError, match=r"area: has to be a whole number, not '3'"):
            replace(WALL, area=wrong).command()

    def test_booleans_are_numbers_to_python_and_not_to_java(self) -> None:
        assert replace(WALL, width=True, area=False).command().fields["x"] == "1"
        assert replace(WALL, width=True, area=False).command().fields["y"] == "0"

    @pytest.mark.parametrize(
        ("text", "value"), [("true", True), ("TRUE", True), ("false", False), ("yes", False)]
    )
    def test_booleans(self, text: str, value: bool) -> None:
        assert wall(z=text).wet is value

    def test_doubles(self) -> None:
        assert wall(ratio="1.0E20").ratio == 1e20
        with pytest.raises(RemoteProtocolError, match="ratio: has to be a number, not 'x'"):
            wall(ratio="x")

    def test_enumerations(self) -> None:
        assert wall(level="7").level is Level.HIGH
        assert wall(color="blue").color is Color.BLUE
        assert replace(WALL, level=Level.HIGH, color=Color.BLUE).command().fields["level"] == "7"
        with pytest.raises(RemoteProtocolError, match="level: 2 is not a valid Level"):
            wall(level="2")

    def test_a_name_that_nobody_knows_is_carried_through(self) -> None:
        stranger = wall(color="Green").color
        assert (stranger, type(stranger)) == ("Green", Color)
        assert replace(WALL, color=stranger).command().fields["color"] == "Green"


class TestBodies:
    def test_a_whole_body(self) -> None:
        paint = Paint(color=Color.BLUE, layers=[1, 2], label="thick")
        command = replace(WALL, paint=paint).command()
        assert command.body == b'{"color":"Blue","layers":[1,2],"lbl":"thick"}'
        assert PaintWall.from_command(command).paint == paint

    def test_no_body_is_the_default(self) -> None:
        assert wall().paint == Paint()

    def test_members_of_one_object(self) -> None:
        queue = MessageQueue("T", "b", 1)
        value = Mix(paints=[Paint()], by_queue={queue: 5}, by_number={0: "x"}, tags={"b", "a"})
        command = value.command(bare_numbers=True)
        assert command.body == (
            b'{"byNumber":{0:"x"},"byQueue":{{"brokerName":"b","queueId":1,"topic":"T"}:5},'
            b'"paints":[{"color":"Red","layers":[]}],"ratio":1.0,"tagSet":["a","b"]}'
        )
        assert Mix.from_command(command) == value

    def test_members_have_java_s_leniency(self) -> None:
        value = mix(
            '{"paints":[null,{"color":1,"layers":["7",2.9,true,null]},{"lbl":5}],"ratio":"2.5",'
            '"byNumber":{"3":4,"4":null},"tagSet":null,"best":{"lbl":true},"unknown":[{}]}'
        )
        assert value.paints == [Paint(color=Color.BLUE, layers=[7, 2, 1]), Paint(label="5")]
        assert (value.ratio, value.by_number, value.tags) == (2.5, {3: "4"}, set())
        assert value.best == Paint(label="true")

    def test_a_queue_as_a_key_may_be_text_inside_a_string(self) -> None:
        key = '{\\"brokerName\\":\\"b\\",\\"queueId\\":1,\\"topic\\":\\"T\\"}'
        value = mix(f'{{"paints":[],"byQueue":{{"{key}":9}}}}')
        assert value.by_queue == {MessageQueue("T", "b", 1): 9}

    @pytest.mark.parametrize(
        ("body", "problem"),
        [
            ("", "paints: has to be there"),
            ("[]", "the body has to be a JSON object, not an array"),
            ("{", "JSON"),
            ('{"paints":null}', "paints: has to be there"),
            ('{"paints":{}}', "paints: has to be an array, not an object"),
            ('{"paints":[{},5]}', r"paints.\[1\]: has to be an object \(Paint\), not 5"),
            ('{"paints":[{"layers":[1,{}]}]}', r"paints.\[0\].layers.\[1\]: .* not an object"),
            ('{"paints":[{"layers":[99999999999]}]}', "and is 99999999999"),
            ('{"paints":[{"layers":[1e400]}]}', "layers"),
            ('{"paints":[{"lbl":[]}]}', "lbl: has to be a string, not an array"),
            ('{"paints":[],"ratio":"x"}', "ratio: has to be a number, not 'x'"),
            ('{"paints":[],"byNumber":{"x":"y"}}', "byNumber.{x}: has to be a whole number"),
            ('{"paints":[],"byQueue":{"x":1}}', "a key has to be a queue, not 'x'"),
            ('{"paints":[],"byQueue":{"{}":1}}', "has to be there and is not"),
            ('{"paints":[],"byQueue":[]}', "byQueue: has to be an object, not an array"),
            ('{"paints":[],"byNumber":{{"a":1}:"y"}}', "byNumber"),
            ('{"paints":[],"best":"x"}', "best: has to be an object .Paint., not the string 'x'"),
            ('{"paints":[{"color":[]}]}', "color: has to be the name of a Color, not an array"),
        ],
    )
    def test_bodies_that_cannot_be_read(self, body: str, problem: str) -> None:
        with pytest.raises(RemoteProtocolError, match=problem):
            mix(body)

    def test_numbers_that_do_not_fit_are_not_sent(self) -> None:
        value = Mix(paints=[Paint(layers=[1 << 40])])
        with pytest.raises(LocalProtocolError, match=r"Mix: paints\.layers: has to be from"):
            value.command()


class TestReplies:
    def test_a_reply_is_a_response(self) -> None:
        command = Painted(outcome=Outcome.FAIR, coats=2, remark="thin", body=b"b").command()
        assert (command.code, command.flag, command.remark) == (19, RESPONSE, "thin")
        assert (command.fields, command.body) == ({"coats": "2"}, b"b")

    def test_each_of_its_codes_is_a_status(self) -> None:
        found = WALL.reply_from(Command(19, flag=RESPONSE, fields={"coats": "2"}, remark="thin"))
        assert found == Painted(outcome=Outcome.FAIR, coats=2, remark="thin")

    def test_any_other_code_is_raised(self) -> None:
        with pytest.raises(TopicNotFound, match="no such wall") as caught:
            WALL.reply_from(Command(17, remark="no such wall"))
        assert caught.value.code == 17
        with pytest.raises(NoPermission):
            Done.from_command(Command(16))

    def test_a_refusal_can_carry_a_header(self) -> None:
        reply = Painted.refusing(NoPermission.because("closed"), seconds=3)
        command = reply.command()
        assert (command.code, command.remark) == (16, "closed")
        assert command.fields == {"coats": "0", "seconds": "3"}

    def test_done_says_nothing_else(self) -> None:
        command = Done().command()
        assert (command.code, command.fields, command.body) == (0, {}, b"")
        assert Done.from_command(Command(0, remark="not set any response code")).refusal is None


class TestTables:
    def test_every_code_of_a_request_leads_to_its_handler(self) -> None:
        def paint(request: PaintWall, owner: str, peer: str) -> Painted:
            return Painted(coats=request.width, remark=owner + peer)

        handlers = table(PaintWall.answered_by(paint))
        assert set(handlers) == {10, 310}
        entry = handlers[10]
        command = replace(WALL, code=RequestCode.SEND_MESSAGE).command()
        assert entry.handler(entry.decode(command), "me", "you") == paint(WALL, "me", "you")

    def test_a_code_is_answered_once(self) -> None:
        def mixed(request: Mix, owner: object, peer: object) -> Done:
            return Done()

        with pytest.raises(TypeError, match=r"HEART_BEAT \(34\) is answered twice: Mix and Mix"):
            table(Mix.answered_by(mixed), Mix.answered_by(mixed))


class TestDeclarations:
    def test_a_derived_class_has_its_own_codec(self) -> None:
        @declared
        class PaintFence(PaintWall):
            CODE = RequestCode.SEND_BATCH_MESSAGE
            LONG_CODE = None

            code: RequestCode = of_frame("code", default=RequestCode.SEND_BATCH_MESSAGE)

        WALL.command()
        assert PaintFence.codes() == (320,)
        assert PaintFence(wall_name="n", width=1).command().code == 320
        assert isinstance(PaintFence.from_command(Command(320, fields=SHORT)), PaintFence)
        assert PaintFence.REPLY is Painted

    def test_plain_int_is_refused(self) -> None:
        @declared
        class Loose(Request[Done]):
            CODE = RequestCode.PULL_MESSAGE
            number: int

        with pytest.raises(TypeError, match="whole numbers have to be Int or Long"):
            Loose(number=1).command()

    def test_types_without_a_form_are_refused(self) -> None:
        @declared
        class Odd(Request[Done]):
            CODE = RequestCode.PULL_MESSAGE
            value: complex = in_body()

        with pytest.raises(TypeError, match=r"complex.* has no form in JSON"):
            Odd(value=1j).command()

    def test_two_kinds_of_body_are_refused(self) -> None:
        @declared
        class Both(Request[Done]):
            CODE = RequestCode.PULL_MESSAGE
            member: str = in_body()
            body: Buffer = raw_body()

        with pytest.raises(TypeError, match="both as a whole and by members"):
            Both(member="", body=b"").command()

    def test_what_may_be_none_has_no_other_default(self) -> None:
        @declared
        class Torn(Request[Done]):
            CODE = RequestCode.PULL_MESSAGE
            value: str | None = "x"

        with pytest.raises(TypeError, match="value may be None"):
            Torn()

    def test_a_form_of_its_own(self) -> None:
        @declared
        class Shout(Request[Done]):
            CODE = RequestCode.PULL_MESSAGE
            word: Annotated[str, Form(str.lower, str.upper)]

        command = Shout(word="hey").command()
        assert command.fields == {"word": "HEY"}
        assert Shout.from_command(command).word == "hey"

    def test_requests_are_values(self) -> None:
        assert PaintWall(wall_name="north", width=3) == WALL != replace(WALL, width=4)
        assert Mix(paints=[]) != WALL
        assert pickle.loads(pickle.dumps(WALL)) == copy.deepcopy(WALL) == WALL
        with pytest.raises(TypeError, match="unhashable"):
            hash(WALL)
        with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'width'"):
            PaintWall(wall_name="north")  # type: ignore[call-arg]

    def test_defaults_are_not_shared(self) -> None:
        Paint().layers.append(1)
        assert Paint().layers == []

    def test_a_raw_body_is_not_in_the_repr(self) -> None:
        assert repr(Painted(coats=1, body=b"secret")) == (
            "Painted(remark=None, refusal=None, outcome=<Outcome.GOOD: 0>, coats=1, seconds=None)"
        )

    def test_a_request_says_what_it_is_about(self) -> None:
        @declared
        class Read(Request[Done]):
            CODE = RequestCode.PULL_MESSAGE
            topic: str
            queue_id: Int
            offset: Long

        assert str(Read(topic="orders", queue_id=2, offset=8812)) == "Read orders[2] @ 8812"
        assert str(WALL) == "PaintWall"
