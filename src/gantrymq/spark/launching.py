"""Makes a Spark session that is right for this package.

Three things have to be settled before Spark's JVM starts: which Java it runs on, which Python its
workers run (without a word they take the `python3` of `PATH`, which in a virtual environment that
is not activated is another one), and that the two talk over a Unix socket, which saves each task
about 40 ms.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Final

from gantrymq.errors import ConfigError
from gantrymq.spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNIX_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"
_WORKERS: Final = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_LOCAL: Final = "127.0.0.1"


def session(
    name: str = "gantry",
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, object] | None = None,
) -> SparkSession:
    """A Spark session, the one that runs already if there is one.

    Without `master` it is what `MASTER` says, or else this machine with all of its cores. `remote`
    is for Spark Connect: a server (`sc://host`), or `local[2]` for one that is started here. `conf`
    goes before what is set here.
    """
    prepare(os.environ)
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigError(f"Spark is needed ({error}): pip install 'gantrymq[spark]'") from error
    builder = SparkSession.builder.appName(name)
    for key, value in settings(master, conf or {}, os.environ, remote=remote).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def prepare(environ: MutableMapping[str, str]) -> None:
    """Have Spark find a Java that it can run on, and its workers this very Python."""
    for variable in _WORKERS:
        environ.setdefault(variable, sys.executable)
    environ["JAVA_HOME"] = str(java_home(environ))


def settings(
    master: str | None,
    conf: Mapping[str, object],
    environ: Mapping[str, str],
    *,
    remote: str | None = None,
) -> dict[str, str]:
    """What the session is made with."""
    found = {UNIX_SOCKETS: "true"} if os.name == "posix" else {}
    given = {key: _text(value) or "" for key, value in conf.items()}
    remote = remote or given.get("spark.remote") or environ.get("SPARK_REMOTE")
    if remote:
        if master:
            raise ConfigError(f"master={master!r} and remote={remote!r}: a session has one of both")
        ours = found if remote.startswith("local") else {}  # a server that runs has its settings
        return {**ours, "spark.remote": remote, **given}
    master = master or _text(conf.get("spark.master")) or environ.get("MASTER") or "local[*]"
    found["spark.master"] = master
    if master.startswith("local["):  # nobody else has to reach it
        found |= {"spark.driver.host": _LOCAL, "spark.driver.bindAddress": _LOCAL}
    return found | given


def _text(value: object) -> str | None:
    if value is None or isinstance(value, bool):
        return None if value is None else str(value).lower()
    return str(value)
