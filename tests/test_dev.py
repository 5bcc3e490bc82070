"""./dev, tried on a small repository of its own with a pip that only writes down what it is told.

The stand-ins for pip, virtualenv and (absent) ensurepip come in through PYTHONPATH, so that the
steps of an installation are the real ones, and take no network and no time.
"""

import ast
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DEV = ROOT / "dev"
GROUPS = ("build", "base", "server", "spark", "outbox", "java", "test", "lint", "docs")

VIRTUALENV = """\
import sys, venv
venv.EnvBuilder(symlinks=True).create(sys.argv[1])
"""

PIP = """\
import os, pathlib, sys, time
here = pathlib.Path(os.environ["STAND_IN"])
with (here / "calls").open("a") as calls:
    calls.write(" ".join(sys.argv[1:]) + chr(10))
print(os.environ.get("PIP_SAYS", ""))
while (here / "hold").exists():
    time.sleep(0.01)
sys.exit(int(os.environ.get("PIP_EXITS", "0")))
"""

MAIN_JOB = """\
import shutil, sys
print("main job", *sys.argv[1:])
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""


class Checkout:
    """A repository with nothing but what ./dev looks at."""

    def __init__(self, root: Path) -> None:
        self.root = root / "repository"
        self.cache = root / "cache"
        self.stand_in = root / "stand-in"
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(root),
            "GANTRY_CACHE_DIR": str(self.cache),
            "PYTHONPATH": str(self.stand_in),
            "STAND_IN": str(self.stand_in),
        }
        for group in GROUPS:
            self.write(f"requirements/{group}.txt", f"{group}-needs==1\n")
        self.write("pyproject.toml", "[project]\n")
        self.write("examples/shop.py", MAIN_JOB)
        shutil.copy(DEV, self.root)
        self.write_stand_in("ensurepip.py", "raise ImportError('as on Debian')\n")
        self.write_stand_in("virtualenv/__main__.py", VIRTUALENV)
        self.write_stand_in("virtualenv/__init__.py", "")
        self.write_stand_in("pip/__main__.py", PIP)

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def write_stand_in(self, name: str, text: str) -> None:
        self.write(str(self.stand_in / name), text)

    def start(self, *arguments, python=sys.executable, **environ) -> subprocess.Popen:
        return subprocess.Popen(
            [python, str(self.root / "dev"), *arguments],
            env=self.environ | environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def dev(self, *arguments, **options) -> tuple[int, str, str]:
        process = self.start(*arguments, **options)
        stdout, stderr = process.communicate(timeout=60)
        return process.returncode, stdout, stderr

    def installed(self) -> list[list[str]]:
        """What pip was asked for since the last look, call by call."""
        calls = self.stand_in / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        calls.unlink(missing_ok=True)
        names = [[word for word in line.split() if word.endswith((".txt", "."))] for line in lines]
        return [[name.removeprefix("requirements/") for name in call] for call in names]

    def hold_pip(self) -> Path:
        self.write_stand_in("hold", "")
        return self.stand_in / "hold"

    def wait_for_pip(self) -> None:
        await_that((self.stand_in / "calls").exists)


def await_that(condition) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, f"still not: {condition}"
        time.sleep(0.01)


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


@pytest.fixture
def dev():
    """./dev as a module, for what a process cannot be brought to."""
    loader = SourceFileLoader("dev_as_module", str(DEV))
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        module = module_from_spec(spec_from_loader("dev_as_module", loader))
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


FOR_RUN = [["build.txt"], ["base.txt", "server.txt"], ["."]]


# -- what it says of itself ------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_help_names_every_command(checkout, dev, arguments):
    code, stdout, stderr = checkout.dev(*arguments)
    assert (code, stderr) == (0, "")
    assert all(f"./dev {name}" in stdout for name in dev.COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tset"], "there is no command tset; there are: bench, clean, docs, lint, run, test"),
        (["lint", "src"], "lint takes no argument but --fix, not src"),
        (["clean", "all"], "clean takes no argument but --all, not all"),
        (["bench", "wire"], "there is no benchmark wire; there are: none"),
    ],
)
def test_a_wrong_use_is_one_line(checkout, arguments, said):
    assert checkout.dev(*arguments) == (1, "", f"dev: {said}\n")
    assert checkout.installed() == []


# -- installing ------------------------------------------------------------------------------------


def test_the_first_run_installs_what_it_needs_and_the_next_is_silent(checkout):
    code, stdout, stderr = checkout.dev("run", "0", "--seconds", "2")
    assert (code, stdout) == (0, "main job 0 --seconds 2\n")
    assert "dev: making .venv: build, base, server, project" in stderr
    assert "dev: .venv is ready after" in stderr
    assert checkout.installed() == FOR_RUN
    assert checkout.dev("run") == (0, "main job\n", "")
    assert checkout.installed() == []


def test_exit_codes_are_those_of_the_command(checkout):
    assert checkout.dev("run", "42")[0] == 42
    assert checkout.dev("run", "3") == (3, "main job 3\n", "")


def test_the_programs_of_venv_come_first(checkout):
    checkout.write("examples/shop.py", "import shutil; print(shutil.which('python'))\n")
    assert checkout.dev("run")[1] == f"{checkout.root}/.venv/bin/python\n"


def test_a_change_of_the_pins_makes_the_environment_anew(checkout):
    checkout.dev("run")
    checkout.installed()
    left_over = checkout.write(".venv/left-over", "")
    checkout.write("requirements/server.txt", "server-needs==2\n")
    code, _, stderr = checkout.dev("run")
    assert code == 0
    assert "dev: making .venv: server" in stderr
    assert checkout.installed() == FOR_RUN
    assert not left_over.exists()
    assert checkout.dev("run")[2] == ""


def test_a_change_of_the_project_only_installs_it_again(checkout):
    checkout.dev("run")
    checkout.installed()
    checkout.write("pyproject.toml", "[project]\nname='other'\n")
    assert "dev: adding to .venv: project" in checkout.dev("run")[2]
    assert checkout.installed() == [["."]]


def test_another_command_adds_only_what_it_needs_more(checkout):
    checkout.dev("run")
    checkout.installed()
    checkout.write("bench/wire.py", "print('bench')\n# needs: lint docs\nprint('more')\n")
    code, stdout, stderr = checkout.dev("bench", "wire")
    assert (code, stdout) == (0, "bench\nmore\n")
    assert "dev: adding to .venv: lint, docs" in stderr
    assert checkout.installed() == [["lint.txt", "docs.txt"]]


@pytest.mark.parametrize("damage", ["python gone", "stamp gone", "stamp torn", "moved"])
def test_a_damaged_environment_is_made_anew(checkout, damage):
    checkout.dev("run")
    checkout.installed()
    if damage == "python gone":
        (checkout.root / ".venv/bin/python").unlink()
    elif damage == "stamp gone":
        (checkout.root / ".venv/gantry.json").unlink()
    elif damage == "stamp torn":
        checkout.write(".venv/gantry.json", '{"groups"')
    else:
        checkout.root = checkout.root.rename(checkout.root.with_name("elsewhere"))
    assert checkout.dev("run")[:2] == (0, "main job\n")
    assert checkout.installed() == FOR_RUN


def test_it_can_be_run_by_the_environment_that_it_makes_anew(checkout):
    checkout.dev("run")
    checkout.write("requirements/base.txt", "base-needs==2\n")
    python = checkout.root / ".venv/bin/python"
    code, stdout, stderr = checkout.dev("run", python=str(python))
    assert (code, stdout) == (0, "main job\n"), stderr


def test_a_missing_file_is_named(checkout):
    (checkout.root / "requirements/server.txt").unlink()
    code, _, stderr = checkout.dev("run")
    assert code == 1
    assert stderr == "dev: requirements/server.txt is missing: this checkout is not whole\n"


def test_nothing_changed_costs_less_than_300_ms(checkout):
    checkout.write("examples/shop.py", "import time; print(time.time())\n")
    checkout.dev("run")
    begun = [(time.time(), float(checkout.dev("run")[1])) for _ in range(5)]
    assert min(there - start for start, there in begun) < 0.3


# -- Java ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "added"),
    [
        ("None", ["spark.txt", "java.txt"]),
        ("types.SimpleNamespace(program=__file__)", ["spark.txt"]),
    ],
)
def test_java_comes_along_with_spark_only_where_there_is_none(checkout, found, added):
    for package in ("src/gantrymq", "src/gantrymq/spark"):
        checkout.write(f"{package}/__init__.py", "")
    looks = "print('looking for Java', file=sys.stderr)"
    finder = f"import sys, types\ndef find_java():\n    {looks}\n    return {found}\n"
    checkout.write("src/gantrymq/spark/java.py", finder)
    checkout.write("examples/shop.py", "# needs: spark\n" + MAIN_JOB)
    code, stdout, stderr = checkout.dev("run")
    assert (code, stdout) == (0, "main job\n")
    installed = [name for call in checkout.installed() for name in call]
    assert sorted(installed) == sorted(["build.txt", "base.txt", "server.txt", ".", *added])
    assert "looking for Java" in stderr
    assert checkout.dev("run") == (0, "main job\n", "")


# -- interruptions, and two at once ----------------------------------------------------------------


@pytest.mark.parametrize(("sent", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_installation_is_begun_anew(checkout, sent, expected):
    hold = checkout.hold_pip()
    process = checkout.start("run")
    checkout.wait_for_pip()
    process.send_signal(sent)
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout) == (expected, "")
    assert "Traceback" not in stderr
    assert not (checkout.root / ".venv/gantry.json").exists()
    checkout.installed()
    hold.unlink()
    assert checkout.dev("run")[:2] == (0, "main job\n")
    assert checkout.installed() == FOR_RUN


def test_an_interrupted_addition_is_begun_anew_too(checkout):
    checkout.dev("run")
    checkout.installed()
    checkout.write("bench/wire.py", "# needs: docs\n")
    hold = checkout.hold_pip()
    process = checkout.start("bench", "wire")
    checkout.wait_for_pip()
    process.kill()
    process.communicate(timeout=30)
    hold.unlink()
    checkout.installed()
    assert checkout.dev("run")[:2] == (0, "main job\n")
    assert checkout.installed() == FOR_RUN


def test_two_at_once_install_once(checkout):
    hold = checkout.hold_pip()
    first = checkout.start("run")
    checkout.wait_for_pip()
    second = checkout.start("run")
    assert "waiting for another ./dev" in second.stderr.readline()
    hold.unlink()
    for process in (first, second):
        stdout, _ = process.communicate(timeout=60)
        assert (process.returncode, stdout) == (0, "main job\n")
    assert checkout.installed() == FOR_RUN


def test_a_killed_dev_leaves_its_lock_to_the_pip_that_still_runs(checkout):
    hold = checkout.hold_pip()
    first = checkout.start("run")
    checkout.wait_for_pip()
    first.kill()
    first.communicate(timeout=30)
    checkout.installed()
    second = checkout.start("run")
    assert "waiting for another ./dev" in second.stderr.readline()
    assert checkout.installed() == []
    hold.unlink()
    second.communicate(timeout=60)
    assert checkout.installed() == FOR_RUN


# -- what can be missing ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("says", "meaning"),
    [
        ("NewConnectionError: [Errno -3] Temporary failure in name resolution", "does not resolve"),
        ("NewConnectionError: [Errno 101] Network is unreachable", "the network is unreachable"),
        ("NewConnectionError: [Errno 111] Connection refused", "the connection is refused"),
        ("ReadTimeoutError: Read timed out. (read timeout=15)", "it does not answer in time"),
    ],
)
def test_no_network_is_one_sentence_and_keeps_the_log(checkout, says, meaning):
    code, stdout, stderr = checkout.dev("run", PIP_SAYS=says, PIP_EXITS="1")
    assert (code, stdout) == (1, "")
    last = stderr.splitlines()[-1]
    assert last.startswith("dev: pip cannot reach its package index")
    assert meaning in last
    assert "(log: .cache/dev/install.log)" in last
    assert says in (checkout.root / ".cache/dev/install.log").read_text()


def test_no_network_spoils_nothing_that_is_there(checkout):
    checkout.dev("run")
    checkout.installed()
    checkout.write("bench/wire.py", "# needs: docs\n")
    code, _, stderr = checkout.dev(
        "bench", "wire", PIP_SAYS="Temporary failure in name resolution", PIP_EXITS="1"
    )
    assert code == 1
    assert "pip cannot reach its package index" in stderr
    checkout.installed()
    assert checkout.dev("run") == (0, "main job\n", "")
    assert checkout.installed() == []


def test_the_real_pip_without_a_network(checkout):
    shutil.rmtree(checkout.stand_in)
    offline = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_NO_CACHE_DIR": "1"}
    code, _, stderr = checkout.dev("run", PIP_CONFIG_FILE=os.devnull, **offline)
    assert code == 1
    assert "pip cannot reach its package index, the connection is refused" in stderr
    assert "Traceback" not in stderr


def test_no_space_for_pip(checkout):
    said = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"
    code, _, stderr = checkout.dev("run", PIP_SAYS=said, PIP_EXITS="1")
    assert code == 1
    assert stderr.splitlines()[-1].startswith("dev: no space left on the disk (free: ")
    assert f"MB at {checkout.root}" in stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_no_space_for_dev_itself(checkout):
    (checkout.root / ".cache/dev").mkdir(parents=True)
    (checkout.root / ".cache/dev/install.log").symlink_to("/dev/full")
    code, _, stderr = checkout.dev("run")
    assert code == 1
    assert "dev: no space left on the disk" in stderr
    assert "Traceback" not in stderr


def test_any_other_failure_of_pip_shows_the_end_of_its_log(checkout):
    code, _, stderr = checkout.dev("run", PIP_SAYS="ERROR: no such version", PIP_EXITS="7")
    assert code == 1
    assert "installing failed with exit code 7" in stderr
    assert stderr.endswith("  ERROR: no such version\n")


def test_no_way_to_make_an_environment(checkout, dev):
    shutil.rmtree(checkout.stand_in / "virtualenv")
    checkout.write_stand_in("virtualenv.py", "raise ImportError\n")
    code, _, stderr = checkout.dev("run")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert code == 1
    assert f"Python {version} here cannot make virtual environments" in stderr
    if Path("/etc/debian_version").exists():
        assert f"install it with `apt-get install python{version}-venv`, or virtualenv" in stderr


# -- old Pythons -----------------------------------------------------------------------------------

TOO_NEW = (
    ast.JoinedStr,
    ast.AnnAssign,
    ast.NamedExpr,
    ast.Nonlocal,
    ast.YieldFrom,
    ast.AsyncFunctionDef,
    ast.Starred,
    ast.Match,
)


def test_it_has_nothing_that_an_old_python_cannot_read():
    tree = ast.parse(DEV.read_text("ascii"))
    for node in ast.walk(tree):
        assert not isinstance(node, TOO_NEW), f"line {node.lineno}: {type(node).__name__}"
        if isinstance(node, ast.FunctionDef):
            arguments = node.args.args
            assert node.returns is None, node.name
            assert not node.args.kwonlyargs, node.name
            assert not node.args.posonlyargs, node.name
            assert all(argument.annotation is None for argument in arguments), node.name
        assert not (isinstance(node, ast.Raise) and node.cause), node.lineno


def old_pythons() -> list[str]:
    """Pythons before 3.11 of this machine, by name on PATH and among those of pyenv."""
    names = ["python2.7", *(f"python3.{minor}" for minor in range(4, 11))]
    found = [path for name in names if (path := shutil.which(name))]
    found += sorted(map(str, Path.home().glob(".pyenv/versions/*/bin/python")))
    question = "import sys; sys.exit(sys.version_info[:2] >= (3, 11))"
    return [
        path
        for path in found
        if not subprocess.call([path, "-c", question], stderr=subprocess.DEVNULL)
    ]


def test_the_old_pythons_of_this_machine_say_what_is_needed(checkout):
    for python in old_pythons():
        environ = {"PATH": "/nonexistent", "PYTHONPATH": ""}
        code, stdout, stderr = checkout.dev("test", python=python, **environ)
        assert (code, stdout) == (1, ""), python
        assert "Gantry needs Python 3.11 or newer; this is " in stderr
        assert stderr.count("\n") == 1, stderr


def test_the_old_pythons_of_this_machine_hand_over_to_a_newer_one(checkout, tmp_path):
    places = with_pythons(tmp_path)
    for python in old_pythons():
        code, stdout, stderr = checkout.dev("help", python=python, PATH=places, PYTHONPATH="")
        assert (code, stderr) == (0, ""), python
        assert "./dev run" in stdout


def with_pythons(directory: Path) -> str:
    """A PATH where python3.13 is a name without a Python, as with pyenv, and python3 is good."""
    broken, good = directory / "broken", directory / "good"
    for place in (broken, good):
        place.mkdir()
    (broken / "python3.13").write_text("#!/bin/sh\nexit 127\n")
    (broken / "python3.13").chmod(0o755)
    (good / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (good / "python3").chmod(0o755)
    return f"{broken}{os.pathsep}{good}{os.pathsep}/nonexistent"


def test_a_newer_python_is_one_that_answers(dev, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", with_pythons(tmp_path))
    assert dev.newer_python() == str(tmp_path / "good" / "python3")
    monkeypatch.setenv("PATH", str(tmp_path / "broken"))
    assert dev.newer_python() is None


def test_too_old_and_nothing_newer_says_what_to_do(dev, monkeypatch):
    monkeypatch.setattr(dev.sys, "version_info", (3, 10, 2))
    monkeypatch.setattr(dev, "newer_python", lambda: None)
    with pytest.raises(dev.Trouble, match=r"needs Python 3\.11 or newer; this is 3\.10\.2"):
        dev.demand_python()


# -- the other commands ----------------------------------------------------------------------------


def test_bench_lists_what_there_is_with_its_first_line(checkout):
    checkout.write("bench/wire.py", '"""Nanoseconds per frame.\n\nMore.\n"""\n')
    checkout.write("bench/fuzz.py", '"""Damaged frames."""\n')
    checkout.write("bench/_shared.py", "")
    code, stdout, _ = checkout.dev("bench")
    assert code == 0
    assert stdout.splitlines() == [
        "fuzz             Damaged frames.",
        "wire             Nanoseconds per frame.",
    ]
    assert checkout.installed() == []


def test_a_benchmark_gets_its_arguments_and_can_import_the_tests(checkout):
    checkout.write("tests/samples.py", "SIZE = 7\n")
    script = "import sys\nfrom tests.samples import SIZE\nprint(SIZE, *sys.argv[1:])\nsys.exit(4)\n"
    checkout.write("bench/wire.py", script)
    assert checkout.dev("bench", "wire", "--frames", "9")[:2] == (4, "7 --frames 9\n")


def give_venv_a(checkout, name, code):
    program = checkout.write(f".venv/bin/{name}", f'#!/bin/sh\necho {name} "$@"\nexit {code}\n')
    program.chmod(0o755)


def test_lint_runs_every_tool_and_names_those_that_failed(checkout):
    checkout.write("bench/all.py", "# needs: server spark test lint java\n")
    checkout.dev("bench", "all")
    for name, code in (("ruff", 0), ("mypy", 1), ("lint-imports", 0)):
        give_venv_a(checkout, name, code)
    code, stdout, _ = checkout.dev("lint")
    assert code == 1
    steps = [line for line in stdout.splitlines() if not line.startswith("==")]
    assert steps == ["ruff format --check .", "ruff check .", "mypy --strict", "lint-imports"]
    assert stdout.endswith("== failed: mypy --strict\n")
    give_venv_a(checkout, "mypy", 0)
    code, stdout, _ = checkout.dev("lint", "--fix")
    assert code == 0
    assert "ruff format .\n" in stdout
    assert "ruff check --fix .\n" in stdout
    assert stdout.endswith("== all clean\n")


def test_clean_removes_what_was_made_and_nothing_else(checkout):
    checkout.dev("run")
    made = [
        checkout.write(name, "")
        for name in ("src/a/__pycache__/x.pyc", "dist/a.whl", "docs/_build/html/i", ".ruff_cache/x")
    ]
    shared = [checkout.write(str(checkout.cache / name / "x"), "") for name in ("jars", "jre")]
    kept = [checkout.write("src/a/x.py", ""), checkout.write(str(checkout.cache / "own"), "")]
    code, stdout, stderr = checkout.dev("clean")
    assert (code, stderr) == (0, "")
    assert "removed .venv" in stdout.replace(f"{checkout.root}/", "")
    assert not any(path.exists() for path in made)
    assert not (checkout.root / ".venv").exists()
    assert not (checkout.root / ".cache").exists()
    assert all(path.exists() for path in kept + shared)
    assert checkout.dev("clean", "--all")[0] == 0
    assert not any(path.exists() for path in shared)
    assert all(path.exists() for path in kept)
