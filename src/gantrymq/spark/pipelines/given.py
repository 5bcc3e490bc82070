"""What the files of a project ask: what was the pipeline told?"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from gantrymq.errors import ConfigError
from gantrymq.spark.pipelines.shelf import PREFIX, READING, SERVER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRETS: Final = "spark.gantry.secrets"
"""Where a run puts what is in no file: keys and passwords, as options of the format."""


def given(spark: SparkSession, name: str, default: str = "") -> str:
    """A setting of the project."""
    return str(spark.conf.get(PREFIX + name, default) or default)


def needed(spark: SparkSession, name: str) -> str:
    """A setting that has to be there."""
    found = given(spark, name)
    if not found:
        raise ConfigError(
            f"the pipeline has to be told {name}: --set {name}=..., or {PREFIX}{name} in the"
            f" configuration of spark-pipeline.yml"
        )
    return found


def client_options(spark: SparkSession) -> dict[str, str]:
    """The options of the format that lead to the cluster."""
    secrets: dict[str, str] = json.loads(spark.conf.get(SECRETS, "{}") or "{}")
    return {SERVER: needed(spark, SERVER)} | secrets


def reading_options(spark: SparkSession, names: Iterable[str] = ()) -> dict[str, str]:
    """The options of the format that say what to read."""
    wanted = tuple(names) or tuple(setting.name for setting in READING)
    found = {name: text for name in wanted if (text := given(spark, name))}
    if not {"startingOffsets", "startingTimestamp"} & found.keys():
        found["startingOffsets"] = "earliest"
    return client_options(spark) | found
