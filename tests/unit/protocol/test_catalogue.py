from __future__ import annotations

import re

import pytest

from gantrymq.protocol.base import Reply
from gantrymq.protocol.catalogue import CATALOGUE, unanswered
from gantrymq.protocol.sending import SendMessage
from gantrymq.wire.codes import RequestCode

UNUSED = {
    13, 22, 23, 27, 47, 209, 210, 211, 212, 213, 214, 301, 302, 200072,
}  # fmt: skip
"""Declared by RocketMQ and answered by nobody there."""


def test_every_code_that_somebody_answers_has_a_class() -> None:
    assert set(unanswered()) == UNUSED
    assert set(CATALOGUE) | set(unanswered()) == set(RequestCode)
    assert list(CATALOGUE) == sorted(CATALOGUE)


def test_both_spellings_lead_to_one_class() -> None:
    assert CATALOGUE[RequestCode.SEND_MESSAGE] is SendMessage
    assert CATALOGUE[RequestCode.SEND_MESSAGE_V2] is SendMessage


@pytest.mark.parametrize("code", CATALOGUE, ids=lambda code: code.name)
def test_a_class_names_its_code_and_its_reply(code: RequestCode) -> None:
    cls = CATALOGUE[code]
    assert re.search(rf"RocketMQ: .*\bcode {code:d}\b", cls.__doc__ or "", re.DOTALL)
    assert code in cls.codes()
    assert issubclass(cls.REPLY, Reply)
    assert (cls.__doc__ or "").splitlines()[0].endswith((".", ":", ";"))
