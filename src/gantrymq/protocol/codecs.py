"""Requests and replies to commands and back: one straight-line function per class and direction.

`from_command` reads a command into a new object without going through `__init__`; `command` writes
one. Both are put together by `Source` from the parts of a declaration at the class's first use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gantrymq.errors import LocalProtocolError, RemoteProtocolError, ReplyError
from gantrymq.protocol import header_texts
from gantrymq.protocol.declaring import Form, Part, Where, parts
from gantrymq.protocol.header_texts import read_headers, write_headers
from gantrymq.protocol.json_shapes import (
    absent,
    annotation,
    read_member,
    shape,
    without_none,
    write_member,
)
from gantrymq.protocol.scalars import Unreadable, kind, missing, utf8
from gantrymq.protocol.sources import Source
from gantrymq.wire import fastjson
from gantrymq.wire.command import PYTHON, RESPONSE, Buffer, Command
from gantrymq.wire.versions import CURRENT

_KNOWN: dict[str, Any] = {
    "Command": Command,
    "Unreadable": Unreadable,
    "LocalProtocolError": LocalProtocolError,
    "RemoteProtocolError": RemoteProtocolError,
    "missing": missing,
}
_MEMBERS: dict[str, Any] = {"remark": None, "version": CURRENT, "language": PYTHON, "more": ()}
"""Members of a command that a class may declare, and what they are where it does not."""


# --- body -----------------------------------------------------------------------------------------


def body_object(body: Buffer) -> Mapping[str, Any]:
    """The JSON object that a body is; no body at all counts as an empty one."""
    tree = fastjson.loads(body) if len(body) else {}
    if type(tree) is not dict:
        raise Unreadable(f"the body has to be a JSON object, not {kind(tree)}")
    return tree


def _read_whole(source: Source, part: Part) -> None:
    hint = without_none(part.hint)
    if hint == Buffer:
        source.add(f"  self.{part.name} = command.body", "body")
        return
    is_json = hint is not str and annotation(hint, Form) is None
    if is_json:
        reading = f"{source.give(shape(hint).read)}({source.give(fastjson.loads)}(body))"
    else:
        form = annotation(hint, Form)
        reading = f"{source.give(utf8 if form is None else form.read)}(body)"
    source.add("  body = command.body", "body")
    if not part.required:
        reading += f" if len(body) else {absent(source, part)}"
    elif is_json:  # text and other forms know themselves what no bytes mean
        source.add("  if not len(body): raise missing()", "body")
    source.add(f"  self.{part.name} = {reading}", "body")


def _write_whole(source: Source, part: Part) -> None:
    hint = without_none(part.hint)
    if hint == Buffer:
        writing = "v"
    elif (form := annotation(hint, Form)) is not None:
        writing = f"{source.give(form.write)}(v)"
    elif hint is str:
        writing = "v.encode()"
    else:
        dumps, write = source.give(fastjson.dumps), source.give(shape(hint).write)
        writing = f"{dumps}({write}(v), bare_numbers=bare_numbers)"
    source.add(f"  v = self.{part.name}", "body")
    source.add(f"  body = b'' if v is None else {writing}", "body")


# --- the two functions ----------------------------------------------------------------------------


class Plan:
    """What one class puts where, and the codes its commands travel under.

    `codes` says for each code whether the short spelling of names goes with it.
    """

    def __init__(self, cls: type, codes: Mapping[int, bool], *, reply: bool) -> None:
        self.cls = cls
        self.codes = codes
        self.reply = reply
        every = parts(cls)
        self.headers = [part for part in every if part.where is Where.NEAR]
        self.members = [part for part in every if part.where is Where.BODY_MEMBER]
        self.whole = next((part for part in every if part.where is Where.WHOLE_BODY), None)
        self.frame = {part.wire: part for part in every if part.where is Where.FRAME}
        if self.members and self.whole:
            raise TypeError(f"{cls.__name__} declares its body both as a whole and by members")

    def reader(self) -> Callable[[Command], Any]:
        """The function behind `from_command`."""
        source = self._source("def from_command(command):")
        source.add(" self = new(owner)")
        source.add(" try:")
        source.add("  fields = command.fields")
        source.add("  get = fields.get")
        self._read_code(source)
        for member in _MEMBERS:
            if member in self.frame:
                source.add(f"  self.{self.frame[member].name} = command.{member}")
        self._read_body(source)
        source.add(" except (ValueError, KeyError) as error:")
        source.add(
            f"  raise RemoteProtocolError(f'{self.cls.__name__}: {{blame(error)}}') from error"
        )
        source.add(" return self")
        return source.function()

    def writer(self) -> Callable[..., Command]:
        """The function behind `command`."""
        source = self._source("def command(self, *, bare_numbers=False):")
        source.add(" command = new(Command)")
        source.add(" try:")
        self._write_code(source)
        self._write_body(source)
        source.add(" except (ValueError, TypeError, AttributeError) as error:")
        source.add(
            f"  raise LocalProtocolError(f'{self.cls.__name__}: {{blame(error)}}') from error"
        )
        source.add(" command.opaque = 0")
        source.add(f" command.flag = {RESPONSE if self.reply else 0}")
        for member, otherwise in _MEMBERS.items():
            part = self.frame.get(member)
            source.add(f" command.{member} = {f'self.{part.name}' if part else otherwise}")
        source.add(" return command")
        return source.function()

    def _source(self, head: str) -> Source:
        source = Source(self.cls, head)
        source.names |= _KNOWN | header_texts.NAMES
        return source

    def _read_code(self, source: Source) -> None:
        part = self.frame.get("code")
        if self.reply:
            self._read_status(source, part)
        elif part is not None:
            self._read_chosen_code(source, part)
            return
        read_headers(source, self.headers, short=True, indent="  ")

    def _read_status(self, source: Source, part: Part | None) -> None:
        source.names["refused"] = refused
        if part is None:
            source.add("  if command.code: raise refused(command)")
        else:
            source.names["known"] = {member.value: member for member in part.hint}.get
            source.add("  v = known(command.code)")
            source.add("  if v is None: raise refused(command)")
            source.add(f"  self.{part.name} = v")
        source.add(f"  self.{self.frame['refusal'].name} = None")

    def _read_chosen_code(self, source: Source, part: Part) -> None:
        source.add("  code = command.code")
        for code, short in self.codes.items():
            source.add(f"  if code == {code:d}:")
            source.add(f"   self.{part.name} = {source.give(part.hint(code))}")
            read_headers(source, self.headers, short=short, indent="   ")
        source.add(f"  if code not in {tuple(map(int, self.codes))}:")
        source.add("   raise Unreadable(f'has no code {code}')")

    def _write_code(self, source: Source) -> None:
        part = self.frame.get("code")
        if part is not None and not self.reply:
            self._write_chosen_code(source, part)
            return
        code = next(iter(self.codes)) if part is None else f"int(self.{part.name})"
        source.add(f"  command.code = {code}")
        if "refusal" in self.frame:
            source.add(f"  v = self.{self.frame['refusal'].name}")
            source.add("  if v is not None: command.code = int(v)")
        write_headers(source, self.headers, short=True, indent="  ")

    def _write_chosen_code(self, source: Source, part: Part) -> None:
        source.add(f"  code = self.{part.name}")
        for code, short in self.codes.items():
            source.add(f"  if code == {code:d}:")
            source.add(f"   command.code = {code:d}")
            write_headers(source, self.headers, short=short, indent="   ")
        choices = tuple(map(int, self.codes))
        source.add(f"  if code not in {choices}:")
        source.add("   raise ValueError(f'has no code {code}')")

    def _read_body(self, source: Source) -> None:
        if self.whole:
            _read_whole(source, self.whole)
        elif self.members:
            source.add(f"  get = {source.give(body_object)}(command.body).get", "body")
            for part in self.members:
                read_member(source, part, indent="  ")

    def _write_body(self, source: Source) -> None:
        if self.whole:
            _write_whole(source, self.whole)
            source.add("  command.body = body")
        elif self.members:
            source.add("  tree = {}")
            for part in self.members:
                write_member(source, part, indent="  ")
            source.add(
                f"  command.body = {source.give(fastjson.dumps)}(tree, bare_numbers=bare_numbers)",
                "body",
            )
        else:
            source.add("  command.body = b''")


def refused(command: Command) -> ReplyError:
    """The error that a reply with another code than its own stands for."""
    return ReplyError.for_code(command.code, command.remark)
