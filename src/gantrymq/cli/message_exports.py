"""`gantry message export`: messages as Parquet or JSON lines, in a file that is whole or absent."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from gantrymq.cli import exits
from gantrymq.cli.message_shapes import COLUMNS, Choice, Range, choosing, command, ranges, row_of
from gantrymq.cli.verbs import Session, verb
from gantrymq.cli.views import Column, Page, json_line, row_data

if TYPE_CHECKING:
    import pyarrow as pa

    from gantrymq.client.reader import Reader
    from gantrymq.model import ReceivedMessage
    from gantrymq.wire.record import StoredMessage

_GROUP_ROWS: Final = 50_000
_GROUP_BYTES: Final = 64 << 20
"""A row group of Parquet is written when it has so many rows or bytes."""
_BATCH: Final = 1_000


@verb(command, "export")
@click.argument("topic")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@click.option(
    "--format", "kind", type=click.Choice(["parquet", "jsonl"]), help="By the file's name."
)
@click.option("--overwrite", is_flag=True, help="Replace a file that is there.")
@choosing()
def export(
    session: Session, topic: str, file: Path, kind: str | None, overwrite: bool, choice: Choice
) -> int | Page:
    """Write messages of TOPIC to FILE, as Parquet or as JSON lines; - is stdout, for JSON lines.

    Parquet has a column for each part of a message, the body as bytes; JSON lines are what `message
    cat -o jsonl` prints.
    """
    return export_messages(session, topic, file, kind, overwrite, choice)


def export_messages(
    session: Session, topic: str, file: Path, kind: str | None, overwrite: bool, choice: Choice
) -> int | Page:
    """Do it, for any topic."""
    kind = kind or _kind_of(file)
    wanted = ranges(session, topic, choice)
    total = sum(one.size for one in wanted)
    if str(file) == "-":
        if kind == "parquet":
            raise click.UsageError("Parquet goes to a file, not to stdout")
        return _to_stdout(session, wanted, choice, total)
    if file.exists() and not overwrite:
        raise exits.Refused(f"{file} is there already; --overwrite replaces it")
    with whole_file(file) as fresh, session.bar("exporting", total) as bar:
        if kind == "parquet":
            rows = _parquet(fresh, choice.reader(session), wanted, choice, bar)
        else:
            rows = _jsonl(fresh, choice.reader(session), wanted, choice, bar)
    size = file.stat().st_size
    return Page(
        [
            (Column("file"), str(file)),
            (Column("rows", "count"), rows),
            (Column("size", "size"), size),
        ]
    )


def _kind_of(file: Path) -> str:
    if file.suffix in (".parquet", ".pq"):
        return "parquet"
    if file.suffix in (".jsonl", ".ndjson", ".json") or str(file) == "-":
        return "jsonl"
    raise click.UsageError(f"say how to write {file}: --format parquet or --format jsonl")


@contextlib.contextmanager
def whole_file(file: Path) -> Iterator[Path]:
    """A file to write to that takes the place of `file` when all went well, and else is gone."""
    fresh = file.with_name(f".{file.name}.part")
    try:
        yield fresh
        fresh.replace(file)
    except FileNotFoundError as error:
        raise click.UsageError(f"{file.parent} is no directory") from error
    finally:
        fresh.unlink(missing_ok=True)


def _to_stdout(session: Session, wanted: list[Range], choice: Choice, total: int) -> int:
    with session.bar("exporting", total) as bar:
        _write_lines(sys.stdout, choice.reader(session), wanted, choice, bar)
    sys.stdout.flush()
    return exits.OK


def _jsonl(fresh: Path, reader: Reader, wanted: list[Range], choice: Choice, bar: Any) -> int:
    with fresh.open("w", encoding="utf-8") as out:
        return _write_lines(out, reader, wanted, choice, bar)


def _write_lines(
    out: IO[str], reader: Reader, wanted: list[Range], choice: Choice, bar: Any
) -> int:
    decode, count = choice.decoder, 0
    for message in _chosen(reader, wanted, choice, bar):
        out.write(json_line(row_data(COLUMNS, row_of(message, decode))) + "\n")
        count += 1
    return count


def _chosen(
    reader: Reader, wanted: list[Range], choice: Choice, bar: Any
) -> Iterator[ReceivedMessage]:
    meant = choice.test()
    for one in wanted:
        at = one.start
        for message in reader.messages(*one):
            bar.add(message.offset + 1 - at)
            at = message.offset + 1
            if meant(message):
                yield message
        bar.add(one.end - at)


# --- Parquet --------------------------------------------------------------------------------------


def _parquet(fresh: Path, reader: Reader, wanted: list[Range], choice: Choice, bar: Any) -> int:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from gantrymq.client.arrow import TYPES
    except ImportError as error:
        from gantrymq.errors import ConfigError

        raise ConfigError(
            f"Parquet needs pyarrow and numpy ({error}): pip install 'gantrymq[spark]'"
        ) from error
    schema, rows = pa.schema(list(TYPES.items())), 0
    with pq.ParquetWriter(fresh, schema, compression="zstd") as writer:
        for table in _row_groups(_batches(reader, wanted, choice, bar), schema):
            writer.write_table(table)
            rows += len(table)
    return rows


def _row_groups(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    import pyarrow as pa

    kept: list[pa.RecordBatch] = []
    for batch in batches:
        kept.append(batch)
        if sum(map(len, kept)) >= _GROUP_ROWS or sum(one.nbytes for one in kept) >= _GROUP_BYTES:
            yield pa.Table.from_batches(kept, schema)
            kept = []
    if kept:
        yield pa.Table.from_batches(kept, schema)


def _batches(
    reader: Reader, wanted: list[Range], choice: Choice, bar: Any
) -> Iterator[pa.RecordBatch]:
    """Record batches: decoded as columns, or where the content decides, message by message."""
    if choice.where is None and choice.text is None:
        for one in wanted:
            left = one.size
            for batch in reader.batches(*one):
                left -= len(batch)
                bar.add(len(batch))
                yield batch
            bar.add(max(0, left))
        return
    kept: list[ReceivedMessage] = []
    for message in _chosen(reader, wanted, choice, bar):
        kept.append(message)
        if len(kept) >= _BATCH:
            yield batch_of(kept)
            kept = []
    if kept:
        yield batch_of(kept)


def batch_of(messages: list[ReceivedMessage]) -> pa.RecordBatch:
    """The same columns for messages that were looked at one by one."""
    import pyarrow as pa

    from gantrymq.client.arrow import TYPES

    rows = [_columns(message) for message in messages]
    return pa.RecordBatch.from_pylist(rows, pa.schema(list(TYPES.items())))


def _columns(message: ReceivedMessage) -> dict[str, Any]:
    stored = message.stored
    return {
        "topic": message.topic,
        "broker": message.broker,
        "queue_id": stored.queue_id,
        "queue_offset": stored.queue_offset,
        "message_id": message.offset_id,
        "unique_id": message.find("UNIQ_KEY"),
        "keys": message.find("KEYS"),
        "tags": message.tag,
        "body": message.body,
        "properties": list(message.all_properties.items()),
        "born_timestamp": message.born_at,
        "store_timestamp": message.stored_at,
        "born_host": message.born_host,
        "store_host": stored.store_host,
        "reconsume_times": stored.reconsume_times,
        "sys_flag": stored.sys_flag,
        "flag": stored.flag,
        "commit_log_offset": stored.log_offset,
        "crc_ok": _is_sound(stored),
    }


def _is_sound(stored: StoredMessage) -> bool:
    from gantrymq.errors import CorruptRecord

    try:
        stored.check_crc()
    except CorruptRecord:
        return False
    return True
