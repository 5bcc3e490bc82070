"""`gantry simulate`, from the command to the page, in a small world."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from gantrymq.cli import simulate
from gantrymq.cli.main import gantry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = ["--brokers", "60", "--queues", "1k", "--seed", "3"]


@pytest.mark.spark
def test_both_are_simulated_and_told_of(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda self: None)  # others go on with it
    words = ["all", "--sends", "20k", "--consumers", "40", *SMALL, "--out", str(tmp_path)]
    told = CliRunner().invoke(gantry, ["simulate", *words], catch_exceptions=False)
    assert told.exit_code == 0, told.output
    assert "loses the fewest sends" in told.output
    assert "40 consumers share 1\N{THIN SPACE}000 queues" in told.output
    page = (tmp_path / "report.html").read_text("utf-8")
    assert page.count("<svg") == 3
    assert "latency fault of 5.x" in page
    rows = spark.read.parquet(str(tmp_path / "sends")).where("kind = 'topic'")
    assert {row["strategy"] for row in rows.select("strategy").distinct().collect()} > {
        "round robin"
    }
    assert spark.read.parquet(str(tmp_path / "shares")).count() > 0


def test_counts_are_read_as_people_write_them() -> None:
    for text, number in (("1k", 1000), ("1e6", 10**6), ("1_000", 1000), ("2M", 2 * 10**6)):
        assert simulate.COUNT.convert(text, None, None) == number
    told = CliRunner().invoke(gantry, ["simulate", "sends", "--sends", "many"])
    assert told.exit_code == 2
    assert "'many' is no number" in told.output
