"""The rules of conftest.py, tried in runs of pytest of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")


@pytest.fixture
def run_pytest(tmp_path):
    """Runs `text` as a test file beside our conftest.py."""

    def run(text, **environ):
        shutil.copy(CONFTEST, tmp_path)
        (tmp_path / "test_it.py").write_text(text)
        (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = interop\n")
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly"]
        told = subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60
        )
        return told.returncode, told.stdout

    return run


INTEROP = """\
import pytest

@pytest.mark.interop
@pytest.mark.parametrize("version", [5, 4])
def test_against_apache(version): pass

def test_of_our_own(): pass
"""


def test_interop_tests_are_skipped_loudly_without_java(run_pytest):
    code, output = run_pytest(INTEROP, PATH="/nonexistent")
    assert code == 0
    assert "NOT TESTED against Apache RocketMQ" in output
    assert "2 interop tests did not run: mvn and java and javac not found" in output
    assert "1 passed, 2 skipped" in output


def test_interop_tests_fail_without_java_where_they_are_required(run_pytest):
    code, output = run_pytest(INTEROP, PATH="/nonexistent", GANTRY_INTEROP="required")
    assert code == 1
    assert "GANTRY_INTEROP=required, but mvn and java and javac not found" in output
    assert "1 passed, 2 errors" in output


def test_interop_tests_run_where_the_tools_are(run_pytest, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "mvn").write_text("")
    (tools / "mvn").chmod(0o755)
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    for name in ("java", "javac"):
        (home / "bin" / name).touch()
    environ = {"PATH": f"{tools}", "JAVA_HOME": f"{home}", "GANTRY_INTEROP": "required"}
    code, output = run_pytest(INTEROP, **environ)
    assert code == 0
    assert "3 passed" in output
    assert "NOT TESTED" not in output


LEAKS = """\
import os, threading, socket

kept, go = [], threading.Event()

def test_clean(no_leaks, free_port):
    with socket.socket() as server:
        server.bind(("127.0.0.1", free_port))
    worker = threading.Thread(target=print)
    worker.start()
    worker.join()

def test_socket(no_leaks):
    kept.append(socket.socket())

def test_thread(no_leaks):
    worker = threading.Thread(target=go.wait, name="worker-7", daemon=True)
    worker.start()

def teardown_module():
    go.set()
    kept.pop().close()
"""


def test_leaks_fail_the_test_that_left_them(run_pytest):
    code, output = run_pytest(LEAKS, PATH=os.environ["PATH"])
    assert code == 1
    assert "3 passed, 2 errors" in output
    assert "left behind: socket:[" in output or "left behind: open" in output
    assert "left behind: thread worker-7" in output
