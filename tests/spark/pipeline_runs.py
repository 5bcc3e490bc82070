"""Runs pipelines in one Spark, one after the other, for those who write to it what to run.

    python pipeline_runs.py NAME_SERVER DIRECTORY

A line of its input is JSON: the name of a pipeline, and what it is told. The answer is a line, too:
what the run did, or why it failed.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from gantrymq.errors import GantryError
from gantrymq.spark.pipelines import making, running, shelf


class Heard:
    """What a watcher heard."""

    def __init__(self) -> None:
        self.batches: list[str] = []
        self.events: list[str] = []

    def batch(self, batch: running.Batch) -> None:
        """A batch is finished."""
        self.batches.append(str(batch))

    def event(self, text: str) -> None:
        """Something else."""
        self.events.append(text)


def main(name_server: str, directory: Path) -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # so that nobody else's words get among them
    spark = None
    with ExitStack() as stack:
        for line in sys.stdin:
            asked = json.loads(line)
            home = directory / asked["home"]
            told = {shelf.SERVER: name_server} | asked["told"]
            making.make(shelf.project(asked["name"]), home, told)
            if spark is None:
                spark = stack.enter_context(running.session(home, master="local[2]"))
            print(json.dumps(run(spark, home)), file=answers, flush=True)


def run(spark: Any, home: Path) -> dict[str, Any]:
    """One pipeline."""
    heard = Heard()
    try:
        totals = running.run_in(spark, home, heard)
    except GantryError as error:
        return {"failed": str(error)}
    return {
        "rows": totals.rows,
        "behind": sum(totals.behind.values()),
        "page": str(totals.page) if totals.page else None,
        "batches": heard.batches,
        "events": heard.events,
    }


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
