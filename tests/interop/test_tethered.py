"""Servers of a test do not outlive it, whatever becomes of the test."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apache
import jars
import pytest
from peer import JavaPeer

HERE = Path(__file__).parent

STARTER = """\
import sys, time
from pathlib import Path
sys.path[:0] = [{here!r}, {source!r}]
import apache
server = apache.Server(
    {version!r}, "org.apache.rocketmq.namesrv.NamesrvStartup", Path({home!r}),
    arguments=["-c", {conf!r}], jvm=apache.NAME_SERVER_HEAP,
)
print(server.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="how a process ends is told by Linux only"
)
def test_a_server_ends_when_its_test_is_killed(
    tmp_path: Path, peers: Callable[[str], JavaPeer]
) -> None:
    peers(jars.CURRENT)  # a skip that says why, should there be no Java
    conf = tmp_path / "namesrv.conf"
    conf.write_text(f"listenPort={apache.free_port()}\n")
    code = STARTER.format(
        here=str(HERE),
        source=str(HERE.parents[1] / "src"),
        version=jars.CURRENT,
        home=str(tmp_path),
        conf=str(conf),
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as test:
        assert test.stdout is not None
        server = os.pidfd_open(int(test.stdout.readline()))
        try:
            assert not ended(server, within=1.0)
            test.kill()
            assert ended(server, within=20.0)
        finally:
            if not ended(server, within=0):
                signal.pidfd_send_signal(server, signal.SIGKILL)
            os.close(server)
            test.kill()


def ended(process: int, *, within: float) -> bool:
    return bool(select.select([process], [], [], within)[0])
