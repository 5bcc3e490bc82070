"""What a session is made with, before any Spark is there."""

import sys

import pytest

from gantrymq.errors import ConfigError
from gantrymq.spark.launching import UNIX_SOCKETS, prepare, settings


def test_a_session_of_this_machine_talks_to_itself_over_unix_sockets():
    found = settings(None, {}, {})
    assert found["spark.master"] == "local[*]"
    assert found["spark.driver.host"] == found["spark.driver.bindAddress"] == "127.0.0.1"
    assert found[UNIX_SOCKETS] == "true"


def test_what_is_given_goes_before():
    found = settings("local[2]", {UNIX_SOCKETS: False, "spark.ui.enabled": False}, {"MASTER": "x"})
    assert (found["spark.master"], found[UNIX_SOCKETS]) == ("local[2]", "false")
    assert found["spark.ui.enabled"] == "false"
    cluster = settings(None, {}, {"MASTER": "spark://far:7077"})
    assert cluster["spark.master"] == "spark://far:7077"
    assert "spark.driver.host" not in cluster


def test_connect():
    assert settings(None, {}, {}, remote="local[2]")[UNIX_SOCKETS] == "true"
    assert settings(None, {}, {"SPARK_REMOTE": "sc://far"}) == {"spark.remote": "sc://far"}
    with pytest.raises(ConfigError, match="a session has one of both"):
        settings("local[2]", {}, {}, remote="sc://far")


def test_workers_run_this_python(tmp_path, monkeypatch):
    monkeypatch.setattr("gantrymq.spark.launching.java_home", lambda _: tmp_path)
    environ = {"PYSPARK_PYTHON": "mine"}
    prepare(environ)
    assert environ == {
        "PYSPARK_PYTHON": "mine",
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "JAVA_HOME": str(tmp_path),
    }
