"""Queues handed out by the broker, and whether a group pulls or pops."""

from __future__ import annotations

from gantrymq.model import MessageQueue
from gantrymq.protocol.base import Done, Int, Reply, Request, declared, in_body, named, whole_body
from gantrymq.protocol.enums import MessageModel, MessageRequestMode
from gantrymq.wire.codes import RequestCode


@declared
class QueueAssignment:
    """A queue that is a client's, and how it reads it; -1 is every queue of the broker.

    RocketMQ: MessageQueueAssignment.
    """

    queue: MessageQueue = named("messageQueue")
    mode: MessageRequestMode = MessageRequestMode.PULL
    attachments: dict[str, str] | None = None


@declared
class QueryAssignmentReply(Reply):
    """A client's queues; None when the broker does not know the strategy.

    RocketMQ: QueryAssignmentResponseBody.
    """

    assignments: list[QueueAssignment] | None = in_body("messageQueueAssignments", default=None)


@declared
class QueryAssignment(Request[QueryAssignmentReply]):
    """Which queues of a topic are a client's; `strategy` is AVG or AVG_BY_CIRCLE.

    RocketMQ: QueryAssignmentRequestBody, code 400.
    """

    CODE = RequestCode.QUERY_ASSIGNMENT

    topic: str = in_body()
    group: str = in_body("consumerGroup")
    client_id: str = in_body()
    strategy: str = in_body("strategyName", default="AVG")
    message_model: MessageModel = in_body(default=MessageModel.CLUSTERING)


@declared
class RequestMode:
    """How a group reads a topic; `shared_queues` limits how many of a member's queues are shared.

    RocketMQ: SetMessageRequestModeRequestBody.
    """

    topic: str
    group: str = named("consumerGroup")
    mode: MessageRequestMode = MessageRequestMode.PULL
    shared_queues: Int = named("popShareQueueNum", default=0)


@declared
class SetRequestMode(Request[Done]):
    """Say how a group shall read a topic.

    RocketMQ: SetMessageRequestModeRequestBody, code 401.
    """

    CODE = RequestCode.SET_MESSAGE_REQUEST_MODE

    setting: RequestMode = whole_body()


@declared
class AllRequestModes(Reply):
    """Topic, group, mode. RocketMQ: MessageRequestModeSerializeWrapper."""

    modes: dict[str, dict[str, RequestMode]] = in_body(
        "messageRequestModeMap", default_factory=dict
    )


@declared
class GetAllRequestModes(Request[AllRequestModes]):
    """Every mode that was set at a broker.

    RocketMQ: GET_ALL_MESSAGE_REQUEST_MODE, code 402.
    """

    CODE = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE
