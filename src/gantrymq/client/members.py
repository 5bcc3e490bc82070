"""What a client consists of, as the engine that its members share sees them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, TypeAlias

from gantrymq.errors import BrokerFailure
from gantrymq.model import MessageQueue, ReceivedMessage
from gantrymq.protocol.groups import ConsumerData, ProducerData
from gantrymq.protocol.running import ConsumeDirectlyReply, RunningInfo
from gantrymq.protocol.transactions import CheckTransactionState

Kind: TypeAlias = Literal["producer", "consumer", "other"]


class Member:
    """A producer or a consumer of a client: a base that does nothing when it is asked something.

    The methods are called on the engine's loop, and must not keep it: what takes long is handed to
    a task or a thread. Two members of one kind and group in one client are a mistake, unless they
    are `shared`.

    RocketMQ: MQProducerInner, MQConsumerInner.
    """

    kind: Kind = "other"
    group: str = ""
    shared: bool = False

    def producer_data(self) -> ProducerData | None:
        """What heartbeats say of it as a producer."""
        return None

    def consumer_data(self) -> ConsumerData | None:
        """What heartbeats say of it as a consumer."""
        return None

    def topics(self) -> Collection[str]:
        """The topics whose routes it wants to be fresh, beside those that were asked for."""
        return ()

    def members_changed(self) -> None:
        """A broker says that the group has other members or subscriptions now (40)."""

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """A broker tells it to go on at these offsets (220)."""

    def offsets(self, topic: str) -> dict[MessageQueue, int]:  # noqa: ARG002 – for overriding
        """Where it stands in the queues of `topic` (221)."""
        return {}

    def running_info(self, *, stacks: bool) -> RunningInfo:  # noqa: ARG002 – for overriding
        """What it is doing (307)."""
        return RunningInfo()

    async def consume_directly(
        self,
        message: ReceivedMessage,  # noqa: ARG002 – for overriding
    ) -> ConsumeDirectlyReply:
        """Consume this one now, as an administrator asked (309)."""
        raise BrokerFailure.because(f"{self.kind} {self.group} does not consume messages")

    def check_transaction(
        self, request: CheckTransactionState, message: ReceivedMessage, address: str
    ) -> None:
        """The broker at `address` asks what became of a transaction (39)."""
