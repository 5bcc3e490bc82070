"""Trees and times are drawn as people read them."""

from __future__ import annotations

import pytest

from gantrymq.rules.drawing import Node, count, draw, moment, span


def test_a_tree_with_branches_and_texts_of_several_lines() -> None:
    top = Node("top")
    first = top.add("first", "a", "b")
    first.below[1].add("deep\nand wide")
    top.add("last")
    assert draw(top).splitlines() == [
        "top",
        "├─ first",
        "│  ├─ a",
        "│  └─ b",
        "│     └─ deep",
        "│        and wide",
        "└─ last",
    ]


def test_what_others_wrote_moves_no_cursor() -> None:
    top = Node("")
    top.add("a\x1b[2Jb\rc\td")
    assert draw(top).split("\n") == ["", "└─ a\ufffd[2Jb", "   c\ufffdd"]


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_250, "1.25 s"),
        (59_999, "60 s"),
        (60_000, "1 min"),
        (200_000, "3 min 20 s"),
        (187_200_000, "2 d 4 h"),
        (-7, "-7 ms"),
        (-90_000, "-1 min 30 s"),
    ],
)
def test_stretches_of_time(ms: int, text: str) -> None:
    assert span(ms) == text


def test_times_that_no_calendar_has_are_shown_as_they_are() -> None:
    assert moment(1_700_000_000_123) == "2023-11-14 22:13:20.123Z"
    assert moment(2**62) == f"{2**62} ms"


def test_numbers_of_things() -> None:
    assert (count(1, "byte"), count(2_000, "byte")) == ("1 byte", "2,000 bytes")
    assert count(0, "retry", "retries") == "0 retries"
