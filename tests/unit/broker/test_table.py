"""What the broker answers, and how it refuses all the rest."""

import pytest

from gantrymq.broker.table import HANDLERS, WITHOUT_WAITING
from gantrymq.net.answering import ask
from gantrymq.wire.codes import RequestCode
from gantrymq.wire.command import Command


@pytest.mark.parametrize("table", [HANDLERS, WITHOUT_WAITING], ids=["main", "VIP"])
def test_every_other_code_is_refused_by_name(table):
    refused = [code for code in RequestCode if code not in table]
    assert refused
    for code in refused:
        answer = ask(Command(code), table, None, None)
        assert isinstance(answer, Command)
        assert answer.code == 3
        assert answer.remark == f" request type {int(code)} not supported: {code.name}"


def test_the_vip_port_lacks_nothing_but_pulls():
    assert {RequestCode(code) for code in HANDLERS.keys() - WITHOUT_WAITING.keys()} == {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
    }
