"""The tables of a broker as JSON files: `config/topics.json` and its like, each with a backup.

They are written as RocketMQ 5.5 writes them, and it and its older versions read them: a tab for
each level, and numbers that are keys without quotes.

```
{
⇥   "offsetTable":{
⇥   ⇥   "orders@billing":{
⇥   ⇥   ⇥   0:12,
⇥   ⇥   ⇥   1:9
```

**Saving** puts the new text beside the file and on the disk, makes the old file the backup, and the
new one the file. Wherever that is cut short, the file is whole, or it is missing and the backup is
what was saved last.

**Loading** takes the file, or the backup if the file is missing or damaged. A damaged file is not
made the backup by the next save, which would cost the only good one: it is put aside as
`<name>.damaged`.

RocketMQ: ConfigManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from gantrymq.errors import LocalProtocolError, RemoteProtocolError, StoreError
from gantrymq.store.disk import Disk
from gantrymq.wire import fastjson

_logger: Final = logging.getLogger("gantrymq.store")

_TAB: Final = "\t"


class JsonFiles:
    """The JSON files of one directory.

    Files of different names may be saved at the same time, in different threads.
    """

    __slots__ = ("_damaged", "_directory", "_disk", "_report")

    def __init__(
        self, disk: Disk, directory: Path, report: Callable[[str], object] = _logger.warning
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._report = report
        self._damaged: set[str] = set()

    def load(self, name: str) -> dict[str, Any] | None:
        """What the file says, or else its backup; None if neither is there."""
        path, backup = self._directory / name, self._directory / f"{name}.bak"
        try:
            return self._read(path)
        except FileNotFoundError:
            why = "it is missing"
        except _UnreadableError as error:
            why = str(error)
            self._damaged.add(name)
        try:
            found = self._read(backup)
        except FileNotFoundError:
            if name not in self._damaged:
                return None
            raise StoreError(
                f"{path}: {why}; and there is no {backup}. Without the file the broker begins with"
                f" an empty table"
            ) from None
        except _UnreadableError as error:
            raise StoreError(f"{path}: {why}; and {backup}: {error}") from error
        self._report(f"{path}: {why}; {backup} is taken instead")
        return found

    def save(self, name: str, tree: Mapping[str, Any]) -> None:
        """Put `tree` in the place of the file. Returns when the disk has it."""
        disk, path = self._disk, self._directory / name
        fresh = path.with_name(f"{name}.tmp")
        text = encode(tree)
        disk.make_directory(self._directory)
        disk.write(fresh, text)
        if disk.exists(path):
            aside = "damaged" if name in self._damaged else "bak"
            disk.rename(path, path.with_name(f"{name}.{aside}"))
        disk.rename(fresh, path)
        self._damaged.discard(name)
        disk.sync_directory(self._directory)

    def _read(self, path: Path) -> dict[str, Any]:
        if not self._disk.exists(path):
            raise FileNotFoundError(path)
        data = self._disk.read(path)
        try:
            tree = fastjson.loads(data)
        except RemoteProtocolError as error:
            raise _UnreadableError(f"{error}" if data.strip() else "it is empty") from error
        if not isinstance(tree, dict):
            raise _UnreadableError("it holds no JSON object")
        return tree


class _UnreadableError(Exception):
    """A file does not hold what it should; the text says why."""


def encode(tree: Mapping[Any, Any]) -> bytes:
    """`tree` as RocketMQ writes it to a file, with its keys in order."""
    parts: list[str] = []
    _write(tree, parts, "\n")
    try:
        return "".join(parts).encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"text that UTF-8 cannot hold: {error}") from error


def _write(value: Any, parts: list[str], line: str) -> None:
    kind = type(value)
    if kind is int:
        parts.append(str(value))
    elif isinstance(value, Mapping):
        _write_members(value, parts, line)
    elif isinstance(value, list | tuple):
        _write_items(value, parts, line)
    else:
        parts.append(_scalar(value))


def _write_members(value: Mapping[Any, Any], parts: list[str], line: str) -> None:
    if not value:
        parts.append("{}")
        return
    inner, before = line + _TAB, "{"
    for key in sorted(value, key=_place):
        name = str(key) if type(key) is int else _scalar(key)
        parts.append(f"{before}{inner}{name}:")
        _write(value[key], parts, inner)
        before = ","
    parts.append(f"{line}}}")


def _write_items(value: list[Any] | tuple[Any, ...], parts: list[str], line: str) -> None:
    if not value:
        parts.append("[]")
        return
    inner, before = line + _TAB, "["
    for item in value:
        parts.append(f"{before}{inner}")
        _write(item, parts, inner)
        before = ","
    parts.append(f"{line}]")


def _place(key: Any) -> tuple[bool, Any]:
    """Numbers come first, in their order."""
    if type(key) is int or isinstance(key, str):
        return isinstance(key, str), key
    raise LocalProtocolError(f"the key of a member is text or a whole number, not {key!r:.80}")


def _scalar(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise LocalProtocolError(f"JSON cannot hold {value!r:.80}: {error}") from error
