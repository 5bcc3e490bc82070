"""The table of `./dev bench peers`: ratios, words, the README's part, the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench._peer_table import (
    BEGIN,
    END,
    Part,
    Row,
    Table,
    as_json,
    from_json,
    into_readme,
    markdown,
    page,
)

SENT = Row(section="Servers", name="send", unit="/s", values={"gantry": 30.0, "rocketmq": 20.0})
LATE = Row(
    section="Servers", name="late", unit="µs", values={"gantry": 5.0, "kafka": 4.0},
    more_is_better=False,
)  # fmt: skip


def made() -> Table:
    return Table(
        date="2026-11-20", command="./dev bench peers", machine="2 processors",
        versions={"Kafka": "4"}, legends={"Servers": "each with its own client"},
        rows=[SENT, LATE], absent=["grpc does not run here: no <network>"],
        parts=[Part(command="./dev bench broker", seconds=3.4, exit_code=0)],
    )  # fmt: skip


def test_a_ratio_above_one_is_ahead_whatever_the_unit() -> None:
    assert SENT.ratio("rocketmq") == pytest.approx(1.5)
    assert LATE.ratio("kafka") == pytest.approx(0.8)
    assert SENT.ratio("kafka") is None


def test_json_comes_back_as_it_was() -> None:
    assert from_json(as_json(made())) == made()
    assert '"rocketmq": 1.5' in as_json(made())


def test_the_readme_keeps_what_is_around_the_table(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", "utf-8")
    for _ in range(2):  # twice is as once
        into_readme(readme, made())
    text = readme.read_text("utf-8")
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert text.count(markdown(made())) == 1
    assert "| send, /s | 30.0 | 20.0 | – | **1.50** | – |" in text
    assert "| late, µs | 5.00 | – | 4.00 | – | 0.80 |" in text
    assert "Not measured: grpc" in text


def test_a_readme_without_marks_is_left_alone(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"{END} then {BEGIN}", "utf-8")
    with pytest.raises(ValueError, match="lacks"):
        into_readme(readme, made())


def test_the_page_has_the_rows_a_plot_for_each_unit_and_what_is_missing() -> None:
    html = page(made()).html()
    assert html.count("<svg") == 3  # ratios, /s, µs
    assert "no &lt;network&gt;" in html
    assert "./dev bench broker" in html
