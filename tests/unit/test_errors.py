"""Errors say what and where, keep their codes, and travel between processes."""

from __future__ import annotations

import pickle

import pytest

from gantrymq import errors
from gantrymq.errors import ReplyError


def subclasses(root: type[Exception]) -> list[type[Exception]]:
    return [root, *(c for child in root.__subclasses__() for c in subclasses(child))]


def test_a_code_becomes_its_class() -> None:
    error = ReplyError.for_code(17, "no such topic", peer="10.0.0.7:10911")
    assert type(error) is errors.TopicNotFound
    assert str(error) == "TopicNotFound (code 17) from 10.0.0.7:10911: no such topic"
    assert error.retriable
    assert error.refresh_route


def test_any_other_code_is_kept() -> None:
    error = ReplyError.for_code(4711)
    assert type(error) is ReplyError
    assert str(error) == "ReplyError (code 4711): no remark"
    assert not error.retriable


def test_a_server_raises_a_refusal_by_its_class() -> None:
    error = errors.InvalidParameter.because("queueId[9] is illegal")
    assert (error.code, error.remark) == (29, "queueId[9] is illegal")
    with pytest.raises(TypeError, match="no single code"):
        ReplyError.because("why")


def test_a_code_cannot_be_given_twice() -> None:
    with pytest.raises(TypeError, match="17 is already TopicNotFound"):
        type("Another", (ReplyError,), {}, code=17)


@pytest.mark.parametrize("kind", subclasses(errors.GantryError), ids=lambda kind: kind.__name__)
def test_every_error_survives_pickling(kind: type[Exception]) -> None:
    error = kind(1, "remark") if issubclass(kind, ReplyError) else kind("what, where, 7")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == str(error)
    assert copy.args == error.args


def test_the_codes_that_rocketmq_clients_retry_are_retriable() -> None:
    retried = {kind.CODE for kind in subclasses(ReplyError) if kind.retriable}  # type: ignore[attr-defined]
    assert retried == {1, 2, 14, 16, 17, 204, 205, 1500} | {errors.FlowControlled.CODE}


def test_what_callers_catch_by_builtin_names() -> None:
    assert issubclass(errors.CallTimeout, TimeoutError)
    assert issubclass(errors.ConfigError, ValueError)
    assert issubclass(errors.InvalidInput, ValueError)
