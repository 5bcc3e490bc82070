"""Whether a transaction has ended, as brokers note it: in a topic beside that of the half messages.

A note lists offsets of the half queue, `12,15,`; one of RocketMQ 4 has a single offset. How far
everything has ended, is what the group `CID_RMQ_SYS_TRANS` has committed in the half queue, and in
the queue of the notes, up to where these are about such transactions. So what lies after both is
all that has to be read. Brokers write notes some seconds after the fact.

RocketMQ: TransactionalMessageServiceImpl.fillOpRemoveMap.
"""

from __future__ import annotations

from typing import Final

from gantrymq.errors import InvalidInput, TopicNotFound
from gantrymq.flows import offsets, progress
from gantrymq.flows.lookup import QueueSpan, read_span
from gantrymq.flows.reaching import Reach
from gantrymq.model import MessageQueue
from gantrymq.protocol.names import HALF_OP_TOPIC, TRANSACTION_GROUP

_MOST: Final = 5_000
"""Notes that are read for one message."""


async def has_ended(reach: Reach, address: str, half: MessageQueue, offset: int) -> bool | None:
    """Whether the half message at `offset` of its queue has been decided on.

    None if the broker does not let its notes be read, as those of RocketMQ 4 do not: then it is
    known when the broker has looked through its half messages, once a minute.
    """
    done = await progress.committed(reach, address, TRANSACTION_GROUP, half)
    if (done or 0) > offset:
        return True
    notes = half._replace(topic=HALF_OP_TOPIC)
    start = await progress.committed(reach, address, TRANSACTION_GROUP, notes) or 0
    place = reach.reachable.get(address, address)
    end = await offsets.end(reach.runtime, place, notes, timeout=reach.timeout)
    if end - start > _MOST:
        raise InvalidInput(f"{end - start:,} notes would have to be read, more than {_MOST:,}")
    span = QueueSpan(queue=notes, address=address, start=start, end=end)
    try:
        async for messages in read_span(reach, span):
            for message in messages:
                if str(offset) in message.content().decode("ascii", "replace").split(","):
                    return True
    except TopicNotFound:
        return None
    return False
