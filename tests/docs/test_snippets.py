"""Every snippet of the documentation does what the page says.

- `python` blocks of a page run one after the other in one namespace. A `text output` block after
  one of them is what it prints.
- `console` blocks hold commands after `$ `. Lines below a command are what it prints; `...` stands
  for anything. Commands of `./dev` are not run from here, but they and the files they name exist.
  What else begins a command has to be known as harmless.
- `localhost:9876` in a `python` block is where readers have their name server; here it is that of a
  `gantry up` which the tests start.
- A block that cannot run begins with `# not run here: ` and the reason, for readers too.
- Anything else has to be a language that is not run at all.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

from tests.interop.gantry import Gantry

ROOT = Path(__file__).resolve().parent.parent.parent
BUILT = (ROOT / "docs" / "_build", ROOT / "docs" / "reference" / "generated")
PAGES = [
    page
    for page in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    if not any(place in page.parents for place in BUILT)
]
NAME_SERVER = "localhost:9876"
NOT_RUN = ("text", "toml", "ini", "json", "java", "xml", "")
HARMLESS = {"gantry", "eval", "echo", "true", "false"}
FENCE = re.compile(
    r"^(?P<fence>`{3,}|~{3,})(?P<info>[^`\n]*)\n(?P<text>.*?)^(?P=fence)", re.MULTILINE | re.DOTALL
)
REASON = re.compile(r"# not run here: \S.{8,}\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """A fenced block and where it is."""

    page: Path
    line: int
    info: str
    text: str

    @property
    def language(self) -> str:
        return self.info.partition(" ")[0]

    @property
    def runs(self) -> bool:
        return not REASON.match(self.text)

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def snippets(page: Path) -> list[Snippet]:
    source = page.read_text("utf-8")
    return [
        Snippet(
            page=page,
            line=source.count("\n", 0, found.start()) + 1,
            info=found["info"].strip(),
            text=found["text"],
        )
        for found in FENCE.finditer(source)
    ]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def platform():
    """Gives the address of a name server with a broker, which run for one page, if it asks."""
    with contextlib.ExitStack() as running:
        yield cache(lambda: running.enter_context(Gantry()).name_server)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_python_snippets_run_and_print_what_the_page_says(page, platform, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    printed = ""
    for snippet in snippets(page):
        if snippet.language == "python" and snippet.runs:
            if NAME_SERVER in snippet.text:
                snippet = replace(snippet, text=snippet.text.replace(NAME_SERVER, platform()))
            printed = run_python(snippet, namespace)
        elif snippet.info == "text output":
            assert printed == snippet.text, f"{snippet}: the page says otherwise"


def run_python(snippet: Snippet, namespace: dict) -> str:
    """What a snippet prints; a failure in it is shown with the line of the page."""
    text = "\n" * snippet.line + snippet.text
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(text, str(snippet.page), "exec"), namespace)
    return out.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_of_a_page_work(page, shell):
    for snippet in snippets(page):
        if snippet.language == "console" and snippet.runs:
            for command, expected in commands(snippet):
                if not of_dev(command):
                    assert shlex.split(command)[0] in HARMLESS, f"{snippet}: {command}"
                    shell(command, expected, str(snippet))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_block_runs_or_says_why_not(page):
    for snippet in snippets(page):
        if not snippet.language.startswith("{"):  # a directive of MyST
            assert snippet.language in {"python", "console", *NOT_RUN}, snippet
        assert "not run here" not in snippet.text or not snippet.runs, f"{snippet}: no reason"


def commands(snippet: Snippet) -> list[tuple[str, str]]:
    """The commands of a block, each with what is shown below it."""
    assert snippet.text.startswith("$ "), f"{snippet}: a console block begins with `$ `"
    parts = re.split(r"^\$ ", snippet.text, flags=re.MULTILINE)[1:]
    return [(command, below) for command, _, below in (part.partition("\n") for part in parts)]


def of_dev(command: str) -> bool:
    """Whether this is a use of ./dev; then it has to be one that ./dev knows."""
    words = [word for word in shlex.split(command) if not re.match(r"[A-Z_]+=", word)]
    if words[0] != "./dev":
        return False
    assert words[1] in [*dev_commands(), "--help"], command
    for word in words[2:]:
        assert "/" not in word or (ROOT / word.partition("::")[0]).exists(), command
    return True


def dev_commands() -> list[str]:
    loader = SourceFileLoader("dev_for_docs", str(ROOT / "dev"))
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        module = module_from_spec(spec_from_loader("dev_for_docs", loader))
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return list(module.COMMANDS)


@pytest.fixture
def shell(tmp_path):
    """Runs a command in the repository, with a home of its own and our `gantry` on PATH."""
    program = tmp_path / "bin" / "gantry"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom gantrymq.cli import main\nmain()\n")
    program.chmod(0o755)
    environ = {
        "HOME": str(tmp_path),
        "PATH": os.pathsep.join(
            [str(program.parent), str(Path(sys.executable).parent), os.environ["PATH"]]
        ),
        "PYTHONPATH": str(ROOT / "src"),
    }

    def run(command, expected, where):
        told = subprocess.run(
            ["bash", "-c", command],
            cwd=ROOT,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert told.returncode == 0, f"{where}: {command}\n{told.stdout}{told.stderr}"
        pattern = re.escape(expected).replace(re.escape("..."), ".*")
        shown = re.fullmatch(pattern, told.stdout, re.DOTALL)
        assert shown or not expected, f"{where}: {command}\n{told.stdout}"

    return run


# -- the extractor itself --------------------------------------------------------------------------

PAGE = """\
# A page

```python
answer = 41
answer += 1
print(answer)
```

```text output
42
```

````text
```python
raise SystemExit("inside a longer fence this is only text")
```
````

```console
$ echo one; echo two
one
...
$ true
```

```python
# not run here: it would take a day
raise SystemExit
```
"""


@pytest.fixture
def page(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_blocks_are_found_with_their_lines(page):
    found = snippets(page)
    assert [(each.info, each.line) for each in found] == [
        ("python", 3),
        ("text output", 9),
        ("text", 13),
        ("console", 19),
        ("python", 26),
    ]
    assert [each.runs for each in found] == [True, True, True, True, False]
    assert commands(found[3]) == [("echo one; echo two", "one\n...\n"), ("true", "")]


def test_a_page_that_says_something_wrong_fails(page, platform, tmp_path, monkeypatch, shell):
    def test_python_snippets():
        test_python_snippets_run_and_print_what_the_page_says(page, platform, tmp_path, monkeypatch)

    test_python_snippets()
    test_commands_of_a_page_work(page, shell)
    page.write_text(PAGE.replace("answer += 1", "answer += 2"))
    with pytest.raises(AssertionError, match=r"page\.md:9: the page says otherwise"):
        test_python_snippets()
    page.write_text(PAGE.replace("answer += 1", "answer += missing"))
    with pytest.raises(NameError) as caught:
        test_python_snippets()
    assert caught.traceback[-1].lineno + 1 == 5
    for wrong in ("echo three", "false"):
        page.write_text(PAGE.replace("echo one", wrong))
        with pytest.raises(AssertionError, match=r"page\.md:19"):
            test_commands_of_a_page_work(page, shell)


def test_a_block_without_a_reason_or_of_an_unknown_language_fails(page):
    test_every_block_runs_or_says_why_not(page)
    for text in (PAGE.replace("it would take a day", "no"), PAGE.replace("```text\n", "```sh\n")):
        page.write_text(text.replace("````text", "````sh"))
        with pytest.raises(AssertionError):
            test_every_block_runs_or_says_why_not(page)


def test_uses_of_dev_are_checked_and_not_run():
    assert of_dev("GANTRY_SEED=3 ./dev test tests/docs")
    assert not of_dev("echo ./dev")
    for wrong in ("./dev tset", "./dev test tests/nowhere"):
        with pytest.raises(AssertionError):
            of_dev(wrong)
