"""Which messages are meant, by what is in them: `--where "body.status = 'failed' AND tag = 'a'"`.

The language is that of brokers' SQL92 filters, and more names: those of properties, `tag`, `key`,
`id`, `topic`, `broker`, `queue`, `offset`, `size`, `retries`, `text` (the body as text), and `body`
with a path, for bodies that can be taken apart: `body.customer.id`, `body.items[0].price`. What is
not there is NULL, as in SQL.

Brokers filter before they send; this filters after. So where `--tag` or `--sql` says enough, they
are cheaper.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from gantrymq.errors import InvalidInput

if TYPE_CHECKING:
    from gantrymq.cli.decoding import Decoder
    from gantrymq.model import ReceivedMessage

_PARTS: Final = re.compile(
    r"'(?:[^']|'')*'"  # a text stays as it is
    r"|\b(?:body|json)(?P<path>(?:\.[A-Za-z_]\w*|\[\d+\])+)"
    r"|(?<![<>])(?P<zero>>=|<=|<(?!>)|>)\s*0(?![\w.])"
    r"|(?<![\w.$])(?P<whole>[1-9]\d{0,14})(?![\w.])"
)
# Decimals begin next to 0, which is none; of numbers that brokers know, none lies between.
_ZERO: Final = {">": "> 4.9E-324", ">=": "> -4.9E-324", "<": "< -4.9E-324", "<=": "< 4.9E-324"}
_STEP: Final = re.compile(r"\.([A-Za-z_]\w*)|\[(\d+)\]")
_SEPARATORS: Final = str.maketrans("\x01\x02", "  ")

OWN: Final[dict[str, Callable[[ReceivedMessage], Any]]] = {
    "tag": lambda message: message.tag,
    "key": lambda message: " ".join(message.keys) or None,
    "id": lambda message: message.message_id,
    "topic": lambda message: message.topic,
    "broker": lambda message: message.broker,
    "queue": lambda message: message.stored.queue_id,
    "offset": lambda message: message.offset,
    "size": lambda message: len(message.body),
    "retries": lambda message: message.retries,
}


class Where:
    """A condition, ready to be asked."""

    def __init__(self, expression: str, decode: Decoder) -> None:
        from gantrymq.rules.sql92 import parse_sql

        self._paths: dict[str, list[str | int]] = {}
        self._decode = decode
        self.expression = expression
        rewritten = _PARTS.sub(self._rewritten, expression)
        try:
            self._filter = parse_sql(rewritten)
        except InvalidInput as error:
            raise click.BadParameter(str(error), param_hint="--where") from error
        self._wants_text = re.search(r"\btext\b", rewritten) is not None

    def __call__(self, message: ReceivedMessage) -> bool:
        """Whether a message is meant."""
        found = dict(message.all_properties)
        for name, of in OWN.items():
            if (value := of(message)) is not None:
                found[name] = str(value)
        if self._wants_text:
            found["text"] = message.body.decode("utf-8", "replace")
        if self._paths:
            data = self._decode(message.body).data
            for name, path in self._paths.items():
                if (value := at_path(data, path)) is not None:
                    found[name] = text_of(value)
        return self._filter.matches(
            {name: value.translate(_SEPARATORS) for name, value in found.items()}
        )

    def _rewritten(self, match: re.Match[str]) -> str:
        """A path as a name that the language takes, a number as one that 2.5 compares with, too."""
        if match["zero"]:
            return _ZERO[match["zero"]]
        if match["whole"]:
            return f"{match['whole']}.0"
        if not match["path"]:
            return match[0]
        path: list[str | int] = [
            name or int(number) for name, number in _STEP.findall(match["path"])
        ]
        name = f"body${len(self._paths)}$" + "_".join(map(str, path))
        self._paths[name] = path
        return name


def at_path(data: Any, path: list[str | int]) -> Any:
    """What is at a path; None where the path leads nowhere."""
    for step in path:
        if isinstance(data, dict):
            data = data.get(step)
        elif isinstance(data, list) and isinstance(step, int):
            data = data[step] if step < len(data) else None
        else:
            return None
    return data


def text_of(value: Any) -> str:
    """A value as a property would have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
