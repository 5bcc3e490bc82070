import logging
from collections.abc import Iterator

import pytest

from gantrymq.errors import ReplyError, TopicNotFound
from gantrymq.net.answering import NO_TABLE, ask, failure, go_away
from gantrymq.protocol.base import Int, Request, declared, table
from gantrymq.wire.codes import RequestCode
from gantrymq.wire.command import RESPONSE, Command
from tests.support import Echo, EchoReply


def answer(request: Echo, owner: object, peer: object) -> EchoReply:
    if request.how == "refuse":
        raise TopicNotFound.because("no such topic")
    if request.how == "odd":
        raise ReplyError(1234, "odd")
    if request.how == "crash":
        raise ZeroDivisionError("by nought")
    assert (owner, peer) == ("owner", "peer")
    return EchoReply(body=request.body)


@declared
class Picky(Request[EchoReply]):
    """Wants a number."""

    CODE = RequestCode.CLEAN_UNUSED_TOPIC

    number: Int


def picky(request: Picky, owner: object, peer: object) -> EchoReply:
    return EchoReply(times=request.number)


TABLE = table(Echo.answered_by(answer))


def asked(command: Command) -> tuple[int, str | None]:
    outcome = ask(command, TABLE, "owner", "peer")
    assert isinstance(outcome, Command)
    assert outcome.is_response
    return outcome.code, outcome.remark


def test_a_handler_answers() -> None:
    outcome = ask(Echo(body=b"hello").command(), TABLE, "owner", "peer")
    assert isinstance(outcome, Command)
    assert (outcome.code, outcome.body) == (0, b"hello")


def test_a_command_is_passed_on_as_it_is() -> None:
    whole = Command(4321, fields={"a": "b"}, body=b"as it came")

    def pass_on(_request: Echo, _owner: object, _peer: object) -> Command:
        return whole

    passing = table(Echo.answered_by(pass_on))  # type: ignore[arg-type]
    assert ask(Echo().command(), passing, None, None) is whole


def test_a_code_that_is_not_in_the_table_gets_rocketmqs_words() -> None:
    assert asked(Command(4711)) == (3, " request type 4711 not supported")
    named = asked(Command(RequestCode.POP_ROLLBACK))
    assert named[0] == 3
    assert named[1].startswith(
        " request type 200056 not supported: POP_ROLLBACK (what is popped is"
    )
    outcome = ask(Echo().command(), NO_TABLE, None, None)
    assert isinstance(outcome, Command)
    assert outcome.code == 3


@pytest.mark.parametrize(
    ("how", "code", "remark"), [("refuse", 17, "no such topic"), ("odd", 1234, "odd")]
)
def test_a_refusal_becomes_its_code(how: str, code: int, remark: str) -> None:
    assert asked(Echo(how=how).command()) == (code, remark)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, logger="gantrymq.net"):
        yield caplog


def test_any_other_error_is_code_1_and_logged_once(logged: pytest.LogCaptureFixture) -> None:
    assert asked(Echo(how="crash").command()) == (1, "ZeroDivisionError: by nought")
    (record,) = logged.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert "VIEW_BROKER_STATS_DATA from peer" in record.getMessage()


def test_a_request_that_does_not_decode_says_what_is_wrong(
    logged: pytest.LogCaptureFixture,
) -> None:
    table_of_ints = table(Picky.answered_by(picky))
    outcome = ask(Command(Picky.CODE, fields={"number": "many"}), table_of_ints, None, "peer")
    assert isinstance(outcome, Command)
    assert outcome.code == 1
    assert outcome.remark is not None
    assert "number" in outcome.remark
    assert [record.levelno for record in logged.records] == [logging.INFO], "no traceback for that"


def test_failures_carry_the_response_bit() -> None:
    assert failure(Command(11), TopicNotFound.because("x"), None).flag == RESPONSE


@pytest.mark.parametrize(("version", "code"), [(513, 1500), (477, 1500), (475, None), (401, None)])
def test_only_clients_that_know_it_are_sent_away(version: int, code: int | None) -> None:
    sent = go_away(Command(310, version=version))
    assert (sent.code if sent else None) == code
