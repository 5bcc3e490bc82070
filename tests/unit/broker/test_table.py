"""What the broker answers, and how it refuses all the rest."""

import pytest

from gantrymq.broker.table import HANDLERS, WITHOUT_WAITING
from gantrymq.nameserver.table import HANDLERS as NAME_SERVER
from gantrymq.net.answering import ask
from gantrymq.protocol.unsupported import REASONS
from gantrymq.wire.codes import RequestCode
from gantrymq.wire.command import Command


@pytest.mark.parametrize("table", [HANDLERS, WITHOUT_WAITING], ids=["main", "VIP"])
def test_every_other_code_is_refused_by_name(table):
    refused = [code for code in RequestCode if code not in table]
    assert refused
    assert {code for code in RequestCode if code not in HANDLERS} == set(REASONS)
    for code in refused:
        answer = ask(Command(code), table, None, None)
        assert isinstance(answer, Command)
        assert answer.code == 3
        refusal = f" request type {int(code)} not supported: {code.name}"
        why = f" ({REASONS[code]})" if code in REASONS else ""
        assert answer.remark == refusal + why


def test_no_reason_is_left_for_what_is_answered():
    assert not [code for code in REASONS if code in HANDLERS]
    here = {code for code in REASONS if code in NAME_SERVER}
    assert {REASONS[code] for code in here} == {"name servers answer it"}
    assert {code for code, why in REASONS.items() if why == "name servers answer it"} == here


def test_the_vip_port_lacks_nothing_but_pulls():
    assert {RequestCode(code) for code in HANDLERS.keys() - WITHOUT_WAITING.keys()} == {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.PEEK_MESSAGE,
        RequestCode.NOTIFICATION,
        RequestCode.POLLING_INFO,
    }
