"""Sending messages, and sending them back, on, or not at all.

`SendMessage` has two spellings: the older code writes its names out, the newer one in single
letters. Both are read; the short one is what is written unless `code` says otherwise.
"""

from __future__ import annotations

from typing import ClassVar

from gantrymq.model import SendStatus
from gantrymq.protocol.base import (
    Buffer,
    Done,
    Int,
    Long,
    Reply,
    RpcRequest,
    TopicRequest,
    declared,
    named,
    of_frame,
    raw_body,
)
from gantrymq.wire.codes import Language, RequestCode
from gantrymq.wire.versions import CURRENT


@declared
class SendReply(Reply):
    """Where a message was stored.

    `message_id` is the offset id, one for each message of a batch, joined by commas; `region` and
    `traced` say what the producer's trace has to carry.

    RocketMQ: SendMessageResponseHeader.
    """

    status: SendStatus = of_frame("code", default=SendStatus.OK)
    message_id: str = named("msgId")
    queue_id: Int
    offset: Long = named("queueOffset")
    transaction_id: str | None = None
    batch_id: str | None = named("batchUniqId", default=None)
    recall_handle: str | None = None
    region: str | None = named("MSG_REGION", default=None)
    traced: bool | None = named("TRACE_ON", default=None)


@declared
class SendMessage(TopicRequest[SendReply]):
    """Store one message, or with `batch` set those that the body holds.

    RocketMQ: SendMessageRequestHeaderV2, code 310, and SendMessageRequestHeader, code 10.
    """

    CODE = RequestCode.SEND_MESSAGE_V2
    LONG_CODE: ClassVar[RequestCode | None] = RequestCode.SEND_MESSAGE

    code: RequestCode = of_frame("code", default=RequestCode.SEND_MESSAGE_V2)
    version: Int = of_frame("version", default=CURRENT)
    language: Int = of_frame("language", default=Language.PYTHON)
    group: str = named("producerGroup", short="a")
    topic: str = named("topic", short="b")
    default_topic: str = named("defaultTopic", short="c", default="TBW102")
    default_topic_queues: Int = named("defaultTopicQueueNums", short="d", default=4)
    queue_id: Int = named("queueId", short="e")
    flags: Int = named("sysFlag", short="f", default=0)
    born_ms: Long = named("bornTimestamp", short="g")
    flag: Int = named("flag", short="h", default=0)
    properties: str | None = named("properties", short="i", default=None)
    reconsume_times: Int = named("reconsumeTimes", short="j", default=0)
    unit_mode: bool = named("unitMode", short="k", default=False)
    max_reconsume_times: Int | None = named("maxReconsumeTimes", short="l", default=None)
    batch: bool = named("batch", short="m", default=False)
    broker: str | None = named("bname", short="n", default=None)
    body: Buffer = raw_body()


@declared
class SendBatch(SendMessage):
    """Store the messages of a batch body.

    RocketMQ: SendMessageRequestHeaderV2, code 320.
    """

    CODE = RequestCode.SEND_BATCH_MESSAGE
    LONG_CODE = None

    code: RequestCode = of_frame("code", default=RequestCode.SEND_BATCH_MESSAGE)
    batch: bool = named("batch", short="m", default=True)


@declared
class SendReplyMessage(SendMessage):
    """Give the answer to a request message to the broker, which passes it on to who asked.

    RocketMQ: SendMessageRequestHeaderV2, code 325, and SendMessageRequestHeader, code 324.
    """

    CODE = RequestCode.SEND_REPLY_MESSAGE_V2
    LONG_CODE = RequestCode.SEND_REPLY_MESSAGE

    code: RequestCode = of_frame("code", default=RequestCode.SEND_REPLY_MESSAGE_V2)


@declared
class PushReplyMessage(TopicRequest[Done]):
    """Hand the answer to a request message to the client that asked.

    RocketMQ: ReplyMessageRequestHeader, code 326.
    """

    CODE = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT

    group: str = named("producerGroup")
    topic: str
    default_topic: str = "TBW102"
    default_topic_queues: Int = named("defaultTopicQueueNums", default=4)
    queue_id: Int
    flags: Int = named("sysFlag", default=0)
    born_ms: Long = named("bornTimestamp")
    flag: Int = 0
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_ms: Long = named("storeTimestamp")
    body: Buffer = raw_body()


@declared
class SendBack(RpcRequest[Done]):
    """Have a message consumed again later: level 0 lets the broker choose, below 0 gives it up.

    RocketMQ: ConsumerSendMsgBackRequestHeader, code 36.
    """

    CODE = RequestCode.CONSUMER_SEND_MSG_BACK

    version: Int = of_frame("version", default=CURRENT)
    log_offset: Long = named("offset")
    group: str
    delay_level: Int
    message_id: str | None = named("originMsgId", default=None)
    topic: str | None = named("originTopic", default=None)
    unit_mode: bool = False
    max_reconsume_times: Int | None = None


@declared
class RecallReply(Reply):
    """Which message was taken back, by its unique id.

    RocketMQ: RecallMessageResponseHeader.
    """

    message_id: str = named("msgId")
    region: str | None = named("MSG_REGION", default=None)


@declared
class RecallMessage(TopicRequest[RecallReply]):
    """Take back a timed message that is not yet due.

    RocketMQ: RecallMessageRequestHeader, code 370.
    """

    CODE = RequestCode.RECALL_MESSAGE

    group: str | None = named("producerGroup", default=None)
    topic: str
    handle: str = named("recallHandle")
