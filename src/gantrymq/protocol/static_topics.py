"""Topics whose queues are mapped onto queues of several brokers.

A logical queue is a list of stretches, each of them a queue at a broker; the last one is open.
"""

from __future__ import annotations

from gantrymq.protocol.base import Int, Long, declared, named


@declared
class MappedStretch:
    """Part of a logical queue: offsets from `logical_offset` on, kept from `start_offset` on.

    An `end_offset` of -1 is open. RocketMQ: LogicQueueMappingItem.
    """

    generation: Int = named("gen", default=0)
    queue_id: Int = 0
    broker: str | None = named("bname", default=None)
    logical_offset: Long = named("logicOffset", default=0)
    start_offset: Long = 0
    end_offset: Long = -1
    start_ms: Long = named("timeOfStart", default=-1)
    end_ms: Long = named("timeOfEnd", default=-1)


@declared
class QueueMapping:
    """Which logical queues of a topic a broker has now, and under which ids.

    RocketMQ: TopicQueueMappingInfo.
    """

    topic: str | None = None
    scope: str = "__global__"
    total_queues: Int = 0
    broker: str | None = named("bname", default=None)
    epoch: Long = 0
    dirty: bool = False
    current_ids: dict[Int, Int] = named("currIdMap", default_factory=dict)


@declared
class QueueMappingDetail(QueueMapping):
    """The same with all stretches. RocketMQ: TopicQueueMappingDetail."""

    hosted: dict[Int, list[MappedStretch]] = named("hostedQueues", default_factory=dict)
