"""What `./dev run` runs: it ends by itself, its counts agree, and it leaves data and a report."""

import re
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pyarrow.dataset
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SHOP = ROOT / "examples" / "shop.py"
ACCOUNT = re.compile(
    r"^(\w+) +([\d,]+) = ([\d,]+) \+ ([\d,]+) \+ ([\d,]+)   ([\d,]+) stored"
    r"(?:, ([\d,]+) rows in Parquet)?$",
    re.MULTILINE,
)
TOPICS = ["orders", "mails", "payments", "reminders"]
DEAD = "%DLQ%mails-desk"
PLOTS = 10
SOON = 30.0
"""Seconds: at most 10 are promised, but here other tests may want the machine at the same time."""
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Notes what is on a page, and whether everything that opens is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data


def accounts(told: str) -> dict[str, list[int]]:
    """The numbers of every topic as the summary says them."""
    return {
        topic: [int(number.replace(",", "")) for number in numbers if number]
        for topic, *numbers in ACCOUNT.findall(told)
    }


def shop(*arguments: str, **options) -> subprocess.Popen:
    command = [sys.executable, "-W", "error", str(SHOP), *arguments]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.mark.timeout(400)
def test_the_main_job_ends_with_counts_that_agree(tmp_path):
    data = tmp_path / "data"
    process = shop("--seconds", "20", "--rate", "150", "--data", str(data))
    out, err = process.communicate(timeout=380)
    assert process.returncode == 0, out + err
    assert "the counts agree\n" in out
    assert "Spark running" in err

    told = accounts(out)
    assert list(told) == TOPICS
    for sent, consumed, dead, in_flight, stored, rows in told.values():
        assert sent == consumed + dead + in_flight > 0
        assert rows == stored
    assert told["mails"][2] > 0

    archive = pyarrow.dataset.dataset(data / "spark" / "archive", partitioning="hive")
    columns = archive.to_table(["topic", "broker", "queue_id", "queue_offset"]).to_pylist()
    kept = {tuple(row.values()) for row in columns}
    assert len(kept) == len(columns) == sum(one[4] for one in told.values()) + told["mails"][2]
    assert {topic for topic, *_ in kept} == {*TOPICS, DEAD}
    revenue = pyarrow.dataset.dataset(data / "spark" / "revenue.parquet").to_table().to_pylist()
    assert sum(minute["orders"] for minute in revenue) == told["orders"][0]

    page = Page((data / "report.html").read_text("utf-8"))
    assert page.open == []
    assert page.seen.count("svg") == page.seen.count("figcaption") == PLOTS
    assert "The counts agree." in page.words
    assert f"report     {data / 'report.html'}\n" in out


def test_ctrl_c_ends_it_soon_and_says_where_everything_is(tmp_path):
    data = tmp_path / "data"
    process = shop("--rate", "100", "--no-spark", "--data", str(data))
    assert process.stderr is not None
    for line in process.stderr:
        if (found := re.search(r"([\d,]+) of [\d,]+ packed", line)) and found[1] != "0":
            break
    asked = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - asked < SOON
    assert process.returncode == 128 + signal.SIGINT, out + err
    assert all(sent == sum(parts[:3]) for sent, *parts in accounts(out).values())
    assert list(accounts(out)) == TOPICS
    assert f"data       {data}\nreport     {data / 'report.html'}\n" in out
    assert Page((data / "report.html").read_text("utf-8")).open == []
