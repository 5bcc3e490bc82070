"""Writes the pages of the reference that follow from the code into docs/reference/generated.

    python tools/gen_reference.py [directory]

Errors come from the classes themselves, request codes from the catalogue of typed requests and
from the servers' tables of handlers, the glossary from the docstrings that name what a thing is
called in RocketMQ (`RocketMQ: X`), settings and metrics from their declarations, and the pages of
`gantry` from its own help. `./dev docs` runs this first.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import mqadmin

from gantrymq import errors, settings
from gantrymq.broker import config as broker_config
from gantrymq.broker.table import HANDLERS as BROKER
from gantrymq.cli.main import gantry
from gantrymq.client.config import ClientConfig
from gantrymq.nameserver import config as nameserver_config
from gantrymq.nameserver.table import HANDLERS as NAME_SERVER
from gantrymq.observe.metrics import METRICS
from gantrymq.protocol.catalogue import CATALOGUE, unanswered
from gantrymq.protocol.unsupported import REASONS
from gantrymq.spark import options as spark_options
from gantrymq.wire.codes import RequestCode

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
TARGET = ROOT / "docs" / "reference" / "generated"

# `RocketMQ: A, B's c, code 11.` at the end of a docstring, or of a line in it.
IN_ROCKETMQ = re.compile(r"RocketMQ: ((?:[^.\n]|\.(?=\S)|\n(?!\n))+)")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; what would end a cell is escaped."""
    names = list(head)
    lines = [names, ["---"] * len(names), *([cell(text) for text in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def first_sentence(text: str | None) -> str:
    """What a docstring says before its first full stop, without RocketMQ's name for it."""
    paragraph = (text or "").strip().split("\n\n")[0]
    before = " ".join(paragraph.split("RocketMQ:")[0].split())
    return re.split(r"(?<=[.!?]) ", before)[0]


# -- errors ----------------------------------------------------------------------------------------


def errors_page() -> str:
    found = list(below(errors.GantryError))
    tree = "\n".join("  " * depth + kind.__name__ for kind, depth in found)
    rows = (
        (f"`{kind.__name__}`", code_of(kind), yes(kind.retriable), yes(kind.refresh_route), text)
        for kind, _ in found
        for text in [first_sentence(kind.__doc__)]
    )
    head = ("Error", "Code", "Retriable", "Refresh route", "What it says")
    return (
        "# Errors\n\nEverything that Gantry raises on purpose is a `GantryError`, in "
        "`gantrymq.errors`.\n\n"
        "**Retriable**: the same call may succeed at another broker, or a moment later. "
        "**Refresh route**: the route that was used is the likely cause.\n\n"
        f"```text\n{tree}\n```\n\n{table(head, rows)}"
    )


def below(kind: type[errors.GantryError], depth: int = 0) -> Iterator[tuple[Any, int]]:
    """`kind` and all that derives from it, each under its parent, in the order of the source."""
    yield kind, depth
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from below(child, depth + 1)


def code_of(kind: type[errors.GantryError]) -> str:
    code = kind.CODE if issubclass(kind, errors.ReplyError) else None
    return "" if code is None else str(code)


def yes(fact: bool) -> str:
    return "yes" if fact else ""


# -- requests --------------------------------------------------------------------------------------


def requests_page() -> str:
    typed = (
        (*named(code), f"`{kind.__name__}`", first_sentence(kind.__doc__), *answering(code))
        for code, kind in CATALOGUE.items()
    )
    head = ("Code", "RocketMQ", "Gantry", "What it is for", "Broker", "Name server")
    return (
        "# Request codes\n\nThe names are those of Apache RocketMQ's `RequestCode`. "
        f"Gantry has types for {len(CATALOGUE)} of {len(RequestCode)} codes. The broker answers "
        f"{len(BROKER)} of them, the name server {len(NAME_SERVER)}.\n\n"
        f"## Typed\n\n{table(head, typed)}\n"
        "## Not yet\n\nA command with one of these codes is carried through as it is.\n\n"
        f"{table(('Code', 'RocketMQ'), map(named, unanswered()))}\n"
        f"{refused_page('The broker', BROKER)}\n{refused_page('The name server', NAME_SERVER)}"
    )


def refused_page(server: str, answered: Collection[int]) -> str:
    refused = (code for code in RequestCode if code not in answered)
    rows = ((*named(code), why_refused(code)) for code in refused)
    return (
        f"## What {server[0].lower()}{server[1:]} refuses\n\n{server} answers these codes with 3, "
        "*request type not supported*, the code's name and the reason.\n\n"
        f"{table(('Code', 'RocketMQ', 'Why'), rows)}"
    )


def why_refused(code: RequestCode) -> str:
    return REASONS.get(code) or ("brokers answer it" if code in BROKER else "")


def named(code: RequestCode) -> tuple[str, str]:
    return str(int(code)), f"`{code.name}`"


def answering(code: RequestCode) -> Iterator[str]:
    """Whether each of the servers answers it."""
    return ("answers" if code in answered else "-" for answered in (BROKER, NAME_SERVER))


# -- the glossary ----------------------------------------------------------------------------------


def glossary_page() -> str:
    rows = sorted(glossary(SOURCE), key=lambda row: row[0].lower())
    return "# Glossary\n\nWhat a thing of Apache RocketMQ is called here.\n\n" + table(
        ("RocketMQ", "Gantry", "Where"), ((a, f"`{b}`", f"`{c}`") for a, b, c in rows)
    )


def glossary(source: Path) -> Iterator[tuple[str, str, str]]:
    """(RocketMQ's name, ours, the module) for every docstring below `source` that names one."""
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        module = ".".join(part for part in parts if part != "__init__")
        tree = ast.parse(path.read_text("utf-8"))
        for name, text in docstrings(tree, module.rpartition(".")[2]):
            for said in IN_ROCKETMQ.findall(text):
                yield " ".join(said.split()).rstrip("."), name, module


def docstrings(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    """The docstrings of a module and of what it defines, with their names."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        text = ast.get_docstring(node)
        if text:
            yield name, text
        for child in node.body:
            inner = getattr(child, "name", "")
            whole = f"{name}.{inner}" if isinstance(node, ast.ClassDef) else inner
            yield from docstrings(child, whole)


# -- the command line ------------------------------------------------------------------------------


def commands_page() -> str:
    parts = [
        f"## `{' '.join(path)}`\n\n```text\n{help_of(command, path)}\n```\n"
        for path, command in commands(gantry, ("gantry",))
    ]
    return "# The `gantry` command\n\n" + "\n".join(parts)


def commands(
    command: click.Command, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            if child := command.get_command(context, name):
                yield from commands(child, (*path, name))


def help_of(command: click.Command, path: tuple[str, ...]) -> str:
    context = click.Context(
        command,
        info_name=" ".join(path),
        help_option_names=["-h", "--help"],
        terminal_width=90,  # the page must not depend on who builds it
        max_content_width=90,
    )
    return command.get_help(context)


# -- settings --------------------------------------------------------------------------------------


SERVERS = {
    "The name server": (nameserver_config.NameServerConfig, nameserver_config.VARIABLES),
    "The broker": (broker_config.BrokerConfig, broker_config.VARIABLES),
}


def settings_page() -> str:
    return (
        "# Settings\n\nEach setting is a key in a TOML file, an environment variable, and for "
        "`--set key=value`. Later sources win: default, file, RocketMQ's properties file, "
        "environment, flag.\n\n" + "\n".join(map(settings_of, SERVERS))
    )


def settings_of(title: str) -> str:
    kind, prefix = SERVERS[title]
    found = [
        (f"`{row.path}`", shown(row.default), row.doc, alias(row), f"`{row.variable(prefix)}`")
        for row in settings.rows(kind)
    ]
    head = ("Setting", "Default", "What it is", "In RocketMQ", "Environment")
    return f"## {title}\n\n{table(head, found)}"


def alias(row: settings.Row) -> str:
    return f"`{row.alias.key}`" if row.alias else ""


def shown(default: Any) -> str:
    if default is None or default in ("", ()):
        return "none"
    return f"`{default}`"


# -- Spark -----------------------------------------------------------------------------------------


OPTIONS = {
    "Reading": spark_options.SourceOptions,
    "Writing": spark_options.SinkOptions,
    "The connection, for both": ClientConfig,
}


def spark_page() -> str:
    return (
        '# Spark options\n\nOptions of `format("rocketmq")`. Names are compared without regard to '
        "case; one that nobody knows is an error. `url` (`rmq://host:9876`) stands for "
        "`nameServer` and more.\n\n" + "\n".join(map(options_of, OPTIONS))
    )


def options_of(title: str) -> str:
    found = [
        (f"`{option_name(row.path)}`", shown(row.default), row.doc)
        for row in settings.rows(OPTIONS[title])
    ]
    return f"## {title}\n\n{table(('Option', 'Default', 'What it is'), found)}"


def option_name(path: str) -> str:
    return "nameServer" if path == "name_servers" else spark_options.spelled(path)


# -- metrics ---------------------------------------------------------------------------------------


def metrics_page() -> str:
    rows = (
        (f"`{one.name}`", one.kind, ", ".join(f"`{label}`" for label in one.labels), one.doc)
        for one in METRICS
    )
    return (
        "# Metrics\n\nWhat a server tells on its page `/metrics`. Names that begin with "
        "`rocketmq_` are those of RocketMQ 5, and mean the same; `gantry_` are ours. What is told "
        "of a server also has the labels `node_type` and `node_id`, and of a broker `cluster`.\n\n"
        + table(("Metric", "Kind", "Labels", "What it is"), rows)
    )


# -- mqadmin ---------------------------------------------------------------------------------------


def mqadmin_page() -> str:
    good = sum(one.refused is None for one in mqadmin.COMMANDS)
    return (
        "# RocketMQ's `mqadmin`\n\n"
        f"What the {len(mqadmin.COMMANDS)} commands of RocketMQ 5.5.0's `mqadmin` do with Gantry: "
        f"{good} of them work, the others are answered with the reason why not. A test takes the "
        "list out of RocketMQ's own jar and runs every command against `gantry up`, as it stands "
        "in this table.\n\n`mqadmin` itself puts every refusal into an exception with a stack "
        "trace of its own, and ends with exit code 0 all the same; the reason is in the line with "
        "`CODE: 3`.\n\n"
        f"{mqadmin_table(mqadmin.COMMANDS)}\n## RocketMQ 4.9.7\n\nIts `mqadmin` has five commands "
        "that 5.5.0 has not. All its others are in the table above, and are tested with its jar as "
        f"well.\n\n{mqadmin_table(mqadmin.OLD)}"
    )


def mqadmin_table(commands: Iterable[mqadmin.Command]) -> str:
    rows = ((f"`{one.name}`", one.does, one.verdict) for one in commands)
    return table(("Command", "What it is for", "With Gantry"), rows)


PAGES = {
    "mqadmin": mqadmin_page,
    "errors": errors_page,
    "requests": requests_page,
    "glossary": glossary_page,
    "commands": commands_page,
    "settings": settings_page,
    "metrics": metrics_page,
    "spark": spark_page,
}


def main(arguments: list[str]) -> None:
    target = Path(arguments[0]) if arguments else TARGET
    target.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        path, text = target / f"{name}.md", page()
        # An unchanged page keeps its time, so that Sphinx does not read it again.
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
