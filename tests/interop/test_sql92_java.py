"""SQL92 filters: what RocketMQ's own filter says of a table of messages, and what ours says.

Every expression meets every message. RocketMQ's verdicts come from its filter, asked in the same
run; ours from the rule alone, and from pulls at a running broker that has the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pytest
from gantry import Gantry
from peer import JavaPeer

import gantrymq as gantry
from gantrymq.errors import InvalidInput, SubscriptionInvalid
from gantrymq.model import MessageQueue
from gantrymq.net.blocking import BlockingPeer
from gantrymq.protocol.pulling import PullFlag, PullMessage, PullStatus
from gantrymq.rules.sql92 import SQL92, parse_sql
from gantrymq.wire import record

TOPIC: Final = "sql_table"

MESSAGES: Final[tuple[dict[str, str], ...]] = (
    {},
    {"n": "5"},
    {"n": "-5"},
    {"n": "0"},
    {"n": "10", "m": "10"},
    {"n": "10", "m": "9"},
    {"n": "9", "m": "10"},
    {"n": "2147483647"},
    {"n": "2147483648"},
    {"n": "-2147483648"},
    {"n": "9223372036854775807"},
    {"n": "9223372036854775808"},
    {"n": "5.0"},
    {"n": "5.5", "m": "5.50"},
    {"n": "1e3"},
    {"n": "+5"},
    {"n": "005"},
    {"n": "five"},
    {"n": "NaN"},
    {"n": "Infinity"},
    {"s": "red", "n": "5"},
    {"s": "blue", "n": "6"},
    {"s": "Red"},
    {"s": "it's"},
    {"s": "red wine", "t": "wine"},
    {"s": "true", "t": "false"},
    {"s": "TRUE"},
    {"s": "5"},
    {"s": "5", "n": "5"},
    {"s": "null"},
    {"s": "grün", "t": "红"},
    {"s": "a", "t": "a"},
    {"s": "a", "t": "b"},
    {"t": "a"},
    {"TAGS": "TagA", "KEYS": "k1 k2"},
    {"$x_1": "7", "_y": "8"},
)

EXPRESSIONS: Final = (
    # comparisons with whole numbers
    "n = 5", "n <> 5", "n > 5", "n >= 5", "n < 5", "n <= 5", "5 = n", "5 <> n", "5 > n", "5 >= n",
    "5 < n", "5 <= n", "n = -5", "n > -5", "n = +5", "n = 0", "n <> 0", "n > 2147483646",
    "n = 2147483647", "n = 2147483648", "n > 2147483647", "n > 2147483648", "n < 2147483648",
    "n = -2147483648", "n > -2147483649", "n = 9223372036854775807", "n < 9223372036854775807",
    "n = 5L", "n > 5l",
    # decimals
    "n = 5.0", "n = 5.5", "n > 5.4", "n < 5.6", "n >= 5.5", "n <= 5.5", "n <> 5.5", "n = .5e1",
    "n > 1e2", "n = 1e3", "n < 1.5e-3", "n > -0.5", "n = 5.", "n = 1000.0",
    # properties against properties
    "n = m", "n <> m", "n > m", "n >= m", "n < m", "n <= m", "s = t", "s <> t", "s > t", "n = s",
    "s = n", "n > s",
    # texts
    "s = 'red'", "s <> 'red'", "'red' = s", "'red' <> s", "s = 'it''s'", "s = 'Red'", "s = '5'",
    "s = 'grün'", "t = '红'", "n = '5'", "n <> '5'", "n = '5.0'", "TAGS = 'TagA'",
    "KEYS = 'k1 k2'", "s = ''", "s = 'null'",
    # truths
    "s = TRUE", "s = true", "s <> TRUE", "s = FALSE", "s <> FALSE", "TRUE = TRUE", "TRUE",
    "FALSE", "TRUE OR s = 'red'", "FALSE OR s = 'red'", "NOT FALSE", "NOT TRUE", "TRUE AND TRUE",
    "TRUE AND s = 'red'", "(n = 5) = TRUE", "(n = 5) <> FALSE", "s", "NOT s",
    # nothing there
    "s IS NULL", "s IS NOT NULL", "n is null", "n Is Not NULL", "nothing IS NULL",
    "nothing IS NOT NULL", "nothing = 5", "nothing <> 5", "NOT (nothing = 5)",
    "NOT (nothing <> 5)", "nothing = 'a'", "nothing <> 'a'", "nothing = naught",
    "nothing <> naught", "n = nothing", "nothing = n", "n <> nothing", "nothing <> n",
    "nothing > 5", "NOT (nothing > 5)", "nothing = TRUE", "nothing <> FALSE",
    "nothing IN ('a')", "nothing NOT IN ('a')", "NOT (nothing IN ('a'))",
    "nothing BETWEEN 1 AND 5", "nothing NOT BETWEEN 1 AND 5", "NULL IS NULL", "-s IS NULL",
    # three values: TRUE, FALSE and neither
    "nothing = 1 OR n = 5", "n = 5 OR nothing = 1", "nothing = 1 AND n = 5",
    "n = 5 AND nothing = 1", "NOT (nothing = 1 AND n = 5)", "NOT (nothing = 1 OR n = 5)",
    "NOT (n = 5 AND nothing = 1)", "nothing = 1 OR nothing = 2", "(nothing = 1) IS NULL",
    "(nothing = 1 OR n = 5) IS NULL",
    # AND, OR, NOT and what binds closer
    "n = 5 AND s = 'red'", "n = 5 OR s = 'blue'", "n = 5 AND s = 'red' OR s = 'blue'",
    "s = 'blue' OR n = 5 AND s = 'red'", "(s = 'blue' OR n = 5) AND s = 'red'", "NOT (n = 5)",
    "NOT n = 5", "NOT (n > 5 AND n < 10)", "NOT NOT (n = 5)", "n > 0 AND n < 10 AND n <> 5",
    "n = 5 OR n = 6 OR n = 0", "n > 5 OR s = 'red'", "s = 'red' OR n > 5", "n > 5 AND s = 'red'",
    "s = 'red' AND n > 4", "NOT (s = 'red' OR n > 5)", "not (s = 'red') and N is null",
    # BETWEEN and IN
    "n BETWEEN 5 AND 10", "n NOT BETWEEN 5 AND 10", "n BETWEEN 5.0 AND 9.5",
    "n BETWEEN -5 AND 0", "n BETWEEN 5 AND 5", "5 BETWEEN n AND 10", "n BETWEEN m AND 10",
    "n NOT BETWEEN 0 AND 2147483648", "n between 1 and 6 AND s = 'red'", "s BETWEEN 1 AND 5",
    "s IN ('red', 'blue')", "s NOT IN ('red', 'blue')", "s IN ('it''s')", "n IN ('5', '10')",
    "n NOT IN ('5')", "s IN ('red') OR n IN ('10')", "NOT (s IN ('red'))",
    # names, remarks and blanks
    "$x_1 = 7", "_y > 7", "$x_1 = 7 AND _y = 8", "  n\t=\n5  ", "n=5", "(((n = 5)))",
    "/* a remark */ n = 5", "n = 5 -- to the end\n", "N = 5",
    # what cannot be
    "", "n", "n >", "n > AND", "n = = 5", "n = 5 AND", "(n = 5", "n = 'open", "n IN ()",
    "n IN (5)", "s > 'a'", "s >= 'a'", "n BETWEEN 10 AND 5", "n BETWEEN 'a' AND 'b'", "n = NULL",
    "n <> NULL", "TRUE > FALSE", "n > TRUE", "5 IN ('5')", "5", "'a'", "n = 9223372036854775808",
    "AND n = 5", "n == 5", "n != 5", "n = 5 AND AND s = 'a'", "%", "n = 0.0",
)  # fmt: skip

OF_5X: Final = (
    "s CONTAINS 'e'", "s NOT CONTAINS 'e'", "NOT (s CONTAINS 'e')", "s CONTAINS 'red'",
    "s STARTSWITH 'red'", "s NOT STARTSWITH 'red'", "s ENDSWITH 'e'", "s NOT ENDSWITH 'e'",
    "s contains 'wine' OR n = 5", "n CONTAINS '5'", "n STARTSWITH '-'", "n ENDSWITH '.0'",
    "s CONTAINS ''", "s NOT CONTAINS ''", "nothing CONTAINS 'e'", "nothing NOT CONTAINS 'e'",
    "NOT (nothing CONTAINS 'e')", "NOT (nothing NOT CONTAINS 'e')", "s CONTAINS '''s'",
    "s CONTAINS 'ü'", "t STARTSWITH '红'", "s STARTSWITH 're' AND s ENDSWITH 'ne'",
    "TAGS CONTAINS 'Tag'", "KEYS CONTAINS 'k2'", "(s CONTAINS 'e') = TRUE",
    "s CONTAINS 'e' AND NOT (s CONTAINS 'w')", "s STARTSWITH ''", "s NOT ENDSWITH ''",
    "s CONTAINS 5",
)  # fmt: skip
"""With words that 4.x does not know."""

REFUSED_HERE: Final = {
    "n = 5 n = 6": "what follows an expression is left out there, and nobody is told",
    "s LIKE 're%'": "there is no LIKE there either: it reads `s`, and leaves the rest out",
}


def table(version: str) -> tuple[str, ...]:
    return EXPRESSIONS if version.startswith("4.") else EXPRESSIONS + OF_5X


def ours(expression: str) -> list[bool] | None:
    """What the rule says of each message; None where it refuses the expression."""
    try:
        found = parse_sql(expression)
    except InvalidInput:
        return None
    return [found.matches(message) for message in MESSAGES]


def theirs(peer: JavaPeer, expressions: tuple[str, ...]) -> dict[str, list[bool] | None]:
    items = [{"expression": text, "messages": list(MESSAGES)} for text in expressions]
    return dict(zip(expressions, peer.ask("sql.verdicts", items), strict=True))


def differences(
    expected: dict[str, list[bool] | None], found: dict[str, list[bool] | None]
) -> list[str]:
    texts = []
    for expression, verdicts in expected.items():
        said = found[expression]
        if verdicts is None or said is None:
            if verdicts is not said:
                texts.append(f"{expression!r}: there {verdicts and 'taken'}, here {said}")
            continue
        texts += [
            f"{expression!r} of {message}: there {there}, here {here}"
            for message, there, here in zip(MESSAGES, verdicts, said, strict=True)
            if there != here
        ]
    return texts


def test_the_rule_says_what_rocketmq_says(peer: JavaPeer) -> None:
    expressions = table(peer.version)
    assert len(expressions) >= 150
    expected = theirs(peer, expressions)
    assert sum(verdicts is None for verdicts in expected.values()) >= 20
    wrong = differences(expected, {text: ours(text) for text in expressions})
    assert not wrong, "\n".join(wrong)


def test_what_follows_an_expression_is_refused_here_alone(peer: JavaPeer) -> None:
    for expression, why in REFUSED_HERE.items():
        assert theirs(peer, (expression,))[expression] is not None, why
        assert ours(expression) is None, why


@pytest.fixture(scope="module")
def filled() -> Iterator[str]:
    """The address of a broker that has the messages, in one queue."""
    with Gantry() as running:
        with gantry.Admin(name_servers=running.name_server, timeout=20) as admin:
            admin.create_topic(TOPIC, queues=1)
        with gantry.Producer(name_servers=running.name_server) as producer:
            queue = MessageQueue(TOPIC, running.BROKER, 0)
            for number, given in enumerate(MESSAGES):
                own = {name: text for name, text in given.items() if name not in ("TAGS", "KEYS")}
                producer.send(
                    TOPIC,
                    b"%d" % number,
                    queue=queue,
                    properties=own,
                    tag=given.get("TAGS"),
                    keys=(given.get("KEYS") or "").split(),
                )
        yield running.broker


def pulled(peer: BlockingPeer, expression: str) -> list[bool] | None:
    """Which of the messages come to somebody who pulls by the expression."""
    numbers: set[int] = set()
    offset = 0
    while offset < len(MESSAGES):
        request = PullMessage(
            group="sql_table_readers",
            topic=TOPIC,
            queue_id=0,
            offset=offset,
            flags=PullFlag.SUBSCRIPTION,
            subscription=expression,
            expression_type=SQL92,
        )
        try:
            reply = peer.call(request, timeout=20)
        except SubscriptionInvalid:
            return None
        assert reply.status in (PullStatus.FOUND, PullStatus.NOTHING_MATCHED)
        numbers.update(int(one.body) for one in record.iterate(reply.body))
        offset = reply.next_offset
    return [number in numbers for number in range(len(MESSAGES))]


def test_pulls_bring_what_rocketmq_would_choose(
    peers: Callable[[str], JavaPeer], filled: str
) -> None:
    expected = theirs(peers("5.5.0"), EXPRESSIONS + OF_5X)
    with BlockingPeer.connect(filled) as peer:
        wrong = differences(expected, {text: pulled(peer, text) for text in expected})
    assert not wrong, "\n".join(wrong)
