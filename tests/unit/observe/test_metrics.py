"""Metrics as data, and their text."""

import re
from math import inf

import pytest

from gantrymq.observe import metrics
from gantrymq.observe.metrics import METRICS, Exposition, Metric, labels

NAME = re.compile(r"[a-z][a-z0-9_]*")


def test_every_metric_has_a_name_of_its_own_that_says_its_kind() -> None:
    assert len({one.name for one in METRICS}) == len(METRICS) > 30
    for one in METRICS:
        assert NAME.fullmatch(one.name)
        assert one.name.startswith(("rocketmq_", "gantry_", "process_"))
        assert one.name.endswith("_total") == (one.kind == "counter")
        assert one.doc
        assert not one.doc[0].isupper()
        assert not one.doc.endswith(".")
        assert all(NAME.fullmatch(label) for label in one.labels)


def text(*samples: metrics.Sample, common: str = "") -> str:
    exposition = Exposition()
    for sample in samples:
        exposition.add(sample, common)
    return exposition.text()


LINES = metrics.counter("lines_total", 'what "was"\nsaid \\', "who", "loud")


def test_samples_become_lines() -> None:
    assert text(LINES.of(3, 'a"b\\c\nd', True), common='place="here"') == (
        '# HELP lines_total what "was"\\nsaid \\\\\n'
        "# TYPE lines_total counter\n"
        'lines_total{place="here",who="a\\"b\\\\c\\nd",loud="true"} 3\n'
    )


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (True, "1"),
        (0, "0"),
        (1 << 60, str(1 << 60)),
        (0.25, "0.25"),
        (1e21, "1e+21"),
        (inf, "+Inf"),
    ],
)
def test_numbers(number: float, said: str) -> None:
    plain = Metric(name="plain", kind="gauge", doc="it")
    assert text(plain.of(number)).splitlines()[-1] == f"plain {said}"
    assert text(plain.of(number), common='a="b"').splitlines()[-1] == f'plain{{a="b"}} {said}'


def test_metrics_stand_together_and_in_their_order_whoever_was_first() -> None:
    found = text(
        metrics.CPU.of(1.5),
        metrics.MESSAGES_IN.of(1, "a", "normal", False),
        metrics.REQUESTS.of(7),
        metrics.MESSAGES_IN.of(2, "b", "normal", False),
    )
    names = [line.split("{")[0].split()[-1] for line in found.splitlines() if line[0] != "#"]
    kinds = [line.split()[2] for line in found.splitlines() if line.startswith("# TYPE")]
    assert [name for name in names if name in ("7", "1.5")] == ["7", "1.5"]
    assert kinds == [metrics.MESSAGES_IN.name, metrics.REQUESTS.name, metrics.CPU.name]
    assert found.count("# HELP") == 3


def test_a_sample_has_a_value_for_every_label() -> None:
    with pytest.raises(ValueError, match="zip"):
        text(LINES.of(1, "only one"))


def test_labels() -> None:
    assert labels({"a": 1, "b": False}) == 'a="1",b="false"'
    assert labels({}) == ""
