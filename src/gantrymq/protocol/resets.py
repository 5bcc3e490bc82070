"""Moving a group to other offsets, and asking its clients where they stand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, TypeAlias

from gantrymq.model import MessageQueue
from gantrymq.protocol.base import (
    Done,
    Int,
    Long,
    Reply,
    RpcRequest,
    TopicRequest,
    declared,
    in_body,
    named,
    whole_body,
)
from gantrymq.protocol.json_shapes import shape
from gantrymq.protocol.scalars import Unreadable, kind
from gantrymq.protocol.text_forms import bytes_form
from gantrymq.wire import fastjson
from gantrymq.wire.codes import RequestCode


@declared
class ResetOffsetsReply(Reply):
    """The offsets that a group has now. RocketMQ: ResetOffsetBody."""

    offsets: dict[MessageQueue, Long] = in_body("offsetTable", default_factory=dict)


@declared
class ResetOffsets(TopicRequest[ResetOffsetsReply]):
    """Move a group to a time, or one of its queues to an offset; a time of -1 is the end.

    Without `force`, a queue stays where it is if the group is not that far yet.

    RocketMQ: ResetOffsetRequestHeader, code 222.
    """

    CODE = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET

    topic: str
    group: str
    queue_id: Int = -1
    offset: Long | None = None
    timestamp_ms: Long = named("timestamp")
    force: bool = named("isForce", default=False)


@dataclass(slots=True)
class OffsetTable:
    """Offsets by queue; `as_list` is how C++ clients have them.

    RocketMQ: ResetOffsetBody, ResetOffsetBodyForC.
    """

    offsets: dict[MessageQueue, int] = field(default_factory=dict)
    as_list: bool = False


@declared
class _Listed:
    topic: str
    broker: str = named("brokerName")
    queue_id: Int = 0
    offset: Long = 0


_BY_QUEUE = shape(dict[MessageQueue, Long])
_IN_LIST = shape(list[_Listed])


def _read_table(body: bytes) -> OffsetTable:
    tree = fastjson.loads(body)
    table = tree.get("offsetTable") if isinstance(tree, dict) else tree
    if isinstance(table, list):
        listed: list[_Listed] = _IN_LIST.read(table)
        offsets = {MessageQueue(i.topic, i.broker, i.queue_id): i.offset for i in listed}
        return OffsetTable(offsets, as_list=True)
    if not isinstance(tree, dict):
        raise Unreadable(f"has to be a table of offsets, not {kind(tree)}")
    return OffsetTable({} if table is None else _BY_QUEUE.read(table))


def _write_table(table: OffsetTable) -> bytes:
    if not table.as_list:
        return fastjson.dumps({"offsetTable": _BY_QUEUE.write(table.offsets)})
    listed = [
        _Listed(topic=queue.topic, broker=queue.broker, queue_id=queue.queue_id, offset=offset)
        for queue, offset in table.offsets.items()
    ]
    return fastjson.dumps({"offsetTable": _IN_LIST.write(listed)})


TableBytes: TypeAlias = Annotated[OffsetTable, bytes_form(_read_table, _write_table)]


@declared
class ResetClientOffsets(TopicRequest[Done]):
    """Tell a client to go on at other offsets; one-way.

    RocketMQ: ResetOffsetRequestHeader, code 220.
    """

    CODE = RequestCode.RESET_CONSUMER_CLIENT_OFFSET

    topic: str
    group: str
    queue_id: Int = -1
    offset: Long | None = None
    timestamp_ms: Long = named("timestamp")
    force: bool = named("isForce", default=False)
    table: TableBytes = whole_body()


@declared
class ClientOffsets(Reply):
    """Where one client stands, or each of several. RocketMQ: GetConsumerStatusBody."""

    of_client: dict[MessageQueue, Long] = in_body("messageQueueTable", default_factory=dict)
    by_client: dict[str, dict[MessageQueue, Long]] = in_body("consumerTable", default_factory=dict)


@declared
class GetOffsetsFromClient(TopicRequest[ClientOffsets]):
    """Ask a client where it stands in the queues of a topic.

    RocketMQ: GetConsumerStatusRequestHeader, code 221.
    """

    CODE = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT

    topic: str
    group: str
    client_id: str | None = named("clientAddr", default=None)


@declared
class GetClientOffsets(TopicRequest[ClientOffsets]):
    """Have the broker ask the clients of a group where they stand, or the one that is named.

    RocketMQ: GetConsumerStatusRequestHeader, code 223.
    """

    CODE = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS

    topic: str
    group: str
    client_id: str | None = named("clientAddr", default=None)


@declared
class CloneGroupOffsets(RpcRequest[Done]):
    """Give a group the offsets of another, for one topic or for all.

    RocketMQ: CloneGroupOffsetRequestHeader, code 314.
    """

    CODE = RequestCode.CLONE_GROUP_OFFSET

    source_group: str = named("srcGroup")
    target_group: str = named("destGroup")
    topic: str | None = None
    offline: bool = False
