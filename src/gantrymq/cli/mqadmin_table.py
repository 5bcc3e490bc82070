"""Every command of RocketMQ's mqadmin (those of 5.5), with its options and its new form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import click

if TYPE_CHECKING:
    from gantrymq.cli.verbs import Session

Words: TypeAlias = list[str]


class Given:
    """The options that were given, by letter."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def __getitem__(self, letter: str) -> str:
        if letter not in self._given:
            raise click.UsageError(f"mqadmin needs -{letter} here")
        return self._given[letter]

    def get(self, letter: str) -> str | None:
        """One of them, if it was given."""
        return self._given.get(letter)

    def has(self, letter: str) -> bool:
        """Whether it was given."""
        return letter in self._given

    def option(self, letter: str, name: str) -> Words:
        """It under a new name, if it was given."""
        return [name, self._given[letter]] if letter in self._given else []


Make: TypeAlias = Callable[[Given, "Session"], Words]


class Old(NamedTuple):
    """An old command: its options as getopt has them, its new form for people, and how to make it.

    Without `make` there is none, and `form` says why.
    """

    options: str
    form: str
    make: Make | None = None


LONG: Final = {
    "namesrvAddr": "n", "topic": "t", "clusterName": "c", "brokerAddr": "b", "brokerName": "b",
    "consumerGroup": "g", "groupName": "g", "producerGroup": "g", "readQueueNums": "r",
    "writeQueueNums": "w", "perm": "p", "order": "o", "msgId": "i", "msgKey": "k",
    "timestamp": "s", "force": "f", "key": "k", "value": "v", "namespace": "s", "msg": "p",
    "messageBody": "p", "keys": "k", "tags": "c", "queueId": "i", "attributes": "a",
    "beginTimestamp": "s", "endTimestamp": "e", "srcGroup": "s", "destGroup": "d",
    "clientId": "i", "jstack": "s",
}  # fmt: skip
"""Long names of options that mean the same in all commands that have them, or in most."""


def broker_name(session: Session, address: str) -> str:
    """The name of the broker at an address: that is what new commands take."""
    for place in session.admin.list_brokers():
        if address in (place.address, place.name):
            return place.name
    return address


def _where(given: Given, session: Session) -> Words:
    if given.has("b"):
        return ["--broker", broker_name(session, given["b"])]
    return given.option("c", "--cluster")


def _update_topic(given: Given, session: Session) -> Words:
    topic = given["t"]
    known = topic in session.admin.list_topics(hidden=True)
    words = ["topic", "alter" if known else "create", topic]
    if known:
        words += given.option("r", "--read-queues") + given.option("w", "--write-queues")
        words += ["--broker", broker_name(session, given["b"])] if given.has("b") else []
    else:
        queues = given.get("w") or given.get("r")
        words += (["--queues", queues] if queues else []) + _where(given, session)
    if given.has("p"):
        words += ["--perm", _permission(given["p"])]
    if given.get("o") == "true":
        words.append("--ordered")
    for change in (given.get("a") or "").split(","):
        if change.startswith("-"):
            words += ["--drop", change[1:]]
        elif change:
            words += ["--attribute", change.removeprefix("+")]
    return words


def _permission(text: str) -> str:
    return {"2": "w", "4": "r", "6": "rw"}.get(text, text)


def _update_group(given: Given, session: Session) -> Words:
    group = given["g"]
    known = any(group in held for held in session.admin.list_groups().answers.values())
    words = ["group", "alter" if known else "create", group]
    words += given.option("r", "--max-retries") + given.option("q", "--retry-queues")
    if given.has("s"):
        words.append("--enabled" if given["s"] == "true" else "--disabled")
    if given.has("d"):
        words.append("--broadcast" if given["d"] == "true" else "--no-broadcast")
    if given.has("o"):
        words.append("--orderly" if given["o"] == "true" else "--concurrent")
    return words


def _reset(given: Given, _session: Session) -> Words:
    place = {"now": "latest", "-1": "latest"}.get(given["s"], given["s"])
    if given.has("o"):
        place = given["o"]
    queue = given.option("q", "--queue")
    return ["group", "reset", given["g"], "--topic", given["t"], "--to", place, *queue, "--yes"]


def _send(given: Given, session: Session) -> Words:
    words = ["message", "send", given["t"], "--body", given["p"]]
    words += given.option("c", "--tag") + given.option("k", "--key")
    del session
    return words


def _range(given: Given) -> Words:
    return given.option("s", "--from") + given.option("e", "--to")


def _print(given: Given, session: Session) -> Words:
    words = ["message", "cat", given["t"], *given.option("b", "--from"), *given.option("e", "--to")]
    if given.get("s") not in (None, "*"):
        words += ["--tag", given["s"]]
    del session
    return words


def _print_queue(given: Given, _session: Session) -> Words:
    broker, queue = given["a"], given["i"]
    words = ["message", "cat", given["t"], "--broker", broker, "--queue", queue]
    return [*words, *given.option("b", "--from"), *given.option("e", "--to")]


def _consume(given: Given, _session: Session) -> Words:
    words = ["message", "cat", given["t"], *given.option("b", "--broker")]
    words += given.option("i", "--queue") + _range(given) + given.option("c", "--limit")
    return [*words, *given.option("o", "--from")]


def _progress(given: Given, _session: Session) -> Words:
    if not given.has("g"):
        return ["group", "list"]
    return ["group", "lag", given["g"], *given.option("t", "--topic")]


def _status(given: Given, _session: Session) -> Words:
    if not given.has("i"):
        return ["group", "members", given["g"]]
    stack = ["--stack"] if given.has("s") else []
    return ["group", "inspect", given["g"], given["i"], *stack]


def _by_id(given: Given, _session: Session) -> Words:
    if given.has("g"):
        words = ["message", "redeliver", given["i"], "--group", given["g"]]
        return words + given.option("d", "--client") + given.option("t", "--topic")
    return ["message", "get", given["i"], *given.option("t", "--topic")]


def _by_offset(given: Given, _session: Session) -> Words:
    place = f"{given['b']}:{given['i']}:{given['o']}"
    return ["message", "get", "--topic", given["t"], "--offset", place]


def _broker_config(given: Given, session: Session) -> Words:
    if not given.has("b"):
        raise click.UsageError("name the broker with -b: gantry changes one at a time")
    change = f"{given['k']}={given['v']}"
    return ["broker", "config", "set", broker_name(session, given["b"]), change]


def _mode(given: Given, _session: Session) -> Words:
    words = ["group", "mode", given["g"], given["t"], given["m"].lower()]
    return words + given.option("q", "--share-queues")


def _clean(what: str) -> Make:
    def make(given: Given, session: Session) -> Words:
        broker = ["--broker", broker_name(session, given["b"])] if given.has("b") else []
        return ["storage", "clean", what, *broker, "--yes"]

    return make


def _of_broker(*words: str) -> Make:
    return lambda given, session: [*words, broker_name(session, given["b"])]


def _plain(*words: str) -> Make:
    return lambda _given, _session: [*words]


_STATIC: Final = "static topics are read and routed, not made: use RocketMQ's own tools"
_HA: Final = "replicas and controllers are not looked after here yet: use RocketMQ's own tools"
_ACL: Final = "users and rules are not looked after here yet: use RocketMQ's own tools"
_COLD: Final = "throttling of cold reads is Apache's alone: use RocketMQ's own tools"
_ROCKS: Final = "stores in RocksDB are Apache's alone: use RocketMQ's own tools"
_LITE: Final = "lite topics are not looked after here yet: use RocketMQ's own tools"
_CONTAINER: Final = "broker containers are Apache's alone: use RocketMQ's own tools"

COMMANDS: Final[Mapping[str, Old]] = {
    # topics
    "updateTopic": Old("b:c:t:r:w:p:o:u:s:a:", "topic create | topic alter", _update_topic),
    "updateTopicList": Old("b:c:f:", "apply -f FILE", lambda g, _: ["apply", "-f", g["f"]]),
    "deleteTopic": Old(
        "c:t:",
        "topic delete TOPIC --yes",
        lambda g, _: ["topic", "delete", g["t"], *g.option("c", "--cluster"), "--yes"],
    ),
    "topicList": Old(
        "c", "topic list --all", _plain("topic", "list", "--all", "-o", "wide")
    ),
    "topicRoute": Old("t:l", "topic route TOPIC", lambda g, _: ["topic", "route", g["t"]]),
    "topicStatus": Old("t:c:", "topic describe TOPIC", lambda g, _: ["topic", "describe", g["t"]]),
    "topicClusterList": Old("t:", "topic route TOPIC", lambda g, _: ["topic", "route", g["t"]]),
    "updateTopicPerm": Old(
        "b:c:t:p:",
        "topic alter TOPIC --perm",
        lambda g, s: [
            *("topic", "alter", g["t"], "--perm", _permission(g["p"])),
            *(["--broker", broker_name(s, g["b"])] if g.has("b") else []),
        ],
    ),
    "statsAll": Old("at:", "topic top", _plain("topic", "top")),
    "allocateMQ": Old(
        "t:i:",
        "group simulate-assign TOPIC --members N",
        lambda g, _: [
            *("group", "simulate-assign", g["t"]),
            *("--members", str(len(g["i"].split(",")))),
        ],
    ),
    "updateOrderConf": Old(
        "t:v:m:",
        "namesrv kv set ORDER_TOPIC_CONFIG",
        lambda g, _: (
            ["namesrv", "kv", "set", "ORDER_TOPIC_CONFIG", g["t"], g["v"]]
            if g["m"] == "put"
            else ["namesrv", "kv", "get", "ORDER_TOPIC_CONFIG", g["t"]]
            if g["m"] == "get"
            else ["namesrv", "kv", "delete", "ORDER_TOPIC_CONFIG", g["t"], "--yes"]
        ),
    ),
    "updateStaticTopic": Old("", _STATIC),
    "remappingStaticTopic": Old("", _STATIC),
    # groups and offsets
    "updateSubGroup": Old(
        "b:c:g:s:m:d:q:r:i:w:a:p:o:", "group create | group alter", _update_group
    ),
    "updateSubGroupList": Old("b:c:f:", "apply -f FILE", lambda g, _: ["apply", "-f", g["f"]]),
    "deleteSubGroup": Old(
        "b:c:g:r:",
        "group delete GROUP --yes",
        lambda g, _: [
            *("group", "delete", g["g"], "--yes"),
            *([] if g.get("r") == "true" else ["--keep-offsets"]),
        ],
    ),
    "getConsumerConfig": Old("g:", "group describe", lambda g, _: ["group", "describe", g["g"]]),
    "setConsumeMode": Old("b:c:t:g:m:q:", "group mode GROUP TOPIC pull|pop", _mode),
    "consumerProgress": Old("g:t:c:s:", "group lag GROUP | group list", _progress),
    "consumerConnection": Old("g:b:", "group members", lambda g, _: ["group", "members", g["g"]]),
    "consumerStatus": Old("g:i:b:s", "group inspect GROUP MEMBER | group members", _status),
    "consumer": Old("g:i:b:s", "group inspect GROUP MEMBER | group members", _status),
    "getConsumerStatus": Old("g:t:i:", "group lag GROUP --owners",
                             lambda g, _: ["group", "lag", g["g"], "--topic", g["t"], "--owners"]),
    "startMonitoring": Old("", "doctor", _plain("doctor")),
    "brokerConsumeStats": Old("b:t:l:o:", "group list", _plain("group", "list")),
    "resetOffsetByTime": Old("g:t:s:f:c:b:q:o:", "group reset GROUP --topic T --to PLACE", _reset),
    "resetOffsetByTimeOld": Old("g:t:s:f:", "group reset GROUP --topic T --to PLACE", _reset),
    "skipAccumulatedMessage": Old(
        "g:t:f:c:",
        "group skip GROUP --topic T",
        lambda g, _: ["group", "skip", g["g"], "--topic", g["t"], "--yes"],
    ),
    "cloneGroupOffset": Old(
        "s:d:t:o:",
        "group clone SOURCE TARGET",
        lambda g, _: ["group", "clone", g["s"], g["d"], *g.option("t", "--topic"), "--yes"],
    ),
    # messages
    "sendMessage": Old("t:p:k:c:b:i:m:", "message send TOPIC --body", _send),
    "consumeMessage": Old("t:b:o:i:g:s:e:c:", "message cat TOPIC", _consume),
    "printMsg": Old("t:c:s:b:e:d:l:", "message cat TOPIC", _print),
    "printMsgByQueue": Old("t:a:i:c:s:b:e:p:d:f:", "message cat TOPIC --queue", _print_queue),
    "queryMsgById": Old("t:i:g:d:s:u:f:c:", "message get ID", _by_id),
    "queryMsgByUniqueKey": Old("t:i:g:d:a:s:e:c:", "message get ID --topic T", _by_id),
    "queryMsgByKey": Old(
        "t:k:m:b:e:c:l:",
        "message get --topic T --key K",
        lambda g, _: [
            *("message", "get", "--topic", g["t"], "--key", g["k"]),
            *g.option("m", "--limit"),
        ],
    ),
    "queryMsgByOffset": Old("t:b:i:o:f:", "message get --topic T --offset B:Q:O", _by_offset),
    "queryMsgTraceById": Old(
        "t:i:b:e:c:",
        "message trace ID",
        lambda g, _: ["message", "trace", g["i"], *g.option("t", "--trace-topic")],
    ),
    "checkMsgSendRT": Old(
        "t:a:s:",
        "bench send TOPIC --clients 1",
        lambda g, _: [
            *("bench", "send", g["t"], "--clients", "1", "--count", g.get("a") or "100"),
            *("--size", g.get("s") or "128"),
        ],
    ),
    "clusterRT": Old(
        "a:s:c:p:m:i:",
        "bench send CLUSTER --clients 1",
        lambda g, _: [
            *("bench", "send", g["c"], "--clients", "1"),
            *("--count", g.get("a") or "100", "--size", g.get("s") or "128"),
        ],
    ),
    "sendMsgStatus": Old(
        "b:s:c:",
        "bench send BROKER --clients 1",
        lambda g, s: [
            *("bench", "send", broker_name(s, g["b"]), "--clients", "1"),
            *("--count", g.get("c") or "50", "--size", g.get("s") or "128"),
        ],
    ),
    "queryCq": Old(
        "t:q:i:c:b:g:",
        "storage cq TOPIC QUEUE",
        lambda g, s: [
            *("storage", "cq", g["t"], g["q"], "--from", g["i"]),
            *g.option("c", "--count"),
            *(["--broker", broker_name(s, g["b"])] if g.has("b") else []),
            *g.option("g", "--group"),
        ],
    ),
    "dumpCompactionLog": Old("", "compacted topics are not kept here: use RocketMQ's own tools"),
    "checkRocksdbCqWriteProgress": Old("", _ROCKS),
    # clients
    "producerConnection": Old(
        "g:t:",
        "client list --producer --group G",
        lambda g, _: ["client", "list", "--producer", "--group", g["g"]],
    ),
    "producer": Old("b:", "client list --producer", _plain("client", "list", "--producer")),
    # brokers and storage
    "brokerStatus": Old("b:c:", "broker status BROKER", _of_broker("broker", "status")),
    "getBrokerConfig": Old(
        "b:c:", "broker config get BROKER", _of_broker("broker", "config", "get")
    ),
    "updateBrokerConfig": Old("b:c:k:v:a:", "broker config set BROKER KEY=VALUE", _broker_config),
    "cleanExpiredCQ": Old("b:c:", "storage clean queues", _clean("queues")),
    "cleanUnusedTopic": Old("b:c:", "storage clean topics", _clean("topics")),
    "deleteExpiredCommitLog": Old("b:c:", "storage clean log", _clean("log")),
    "setCommitLogReadAheadMode": Old("", "reading ahead is left to the operating system"),
    "resetMasterFlushOffset": Old("", _HA),
    "switchTimerEngine": Old("", _ROCKS),
    "getColdDataFlowCtrInfo": Old("", _COLD),
    "updateColdDataFlowCtrGroupConfig": Old("", _COLD),
    "removeColdDataFlowCtrGroupConfig": Old("", _COLD),
    # clusters, name servers, replicas
    "clusterList": Old("mi:c:", "cluster status", _plain("cluster", "status")),
    "addWritePerm": Old("b:", "broker undrain BROKER", _of_broker("broker", "undrain")),
    "wipeWritePerm": Old(
        "b:",
        "broker drain BROKER",
        lambda g, s: ["broker", "drain", broker_name(s, g["b"]), "--yes", "--force"],
    ),
    "getNamesrvConfig": Old("", "namesrv config get", _plain("namesrv", "config", "get")),
    "updateNamesrvConfig": Old(
        "k:v:",
        "namesrv config set KEY=VALUE",
        lambda g, _: ["namesrv", "config", "set", f"{g['k']}={g['v']}"],
    ),
    "updateKvConfig": Old(
        "s:k:v:",
        "namesrv kv set NAMESPACE KEY VALUE",
        lambda g, _: ["namesrv", "kv", "set", g["s"], g["k"], g["v"]],
    ),
    "deleteKvConfig": Old(
        "s:k:",
        "namesrv kv delete NAMESPACE KEY",
        lambda g, _: ["namesrv", "kv", "delete", g["s"], g["k"], "--yes"],
    ),
    "haStatus": Old("", _HA),
    "getSyncStateSet": Old("", _HA),
    "getBrokerEpoch": Old("", _HA),
    "getControllerMetaData": Old("", _HA),
    "getControllerConfig": Old("", _HA),
    "updateControllerConfig": Old("", _HA),
    "electMaster": Old("", _HA),
    "cleanBrokerMetadata": Old("", _HA),
    "addBroker": Old("", _CONTAINER),
    "removeBroker": Old("", _CONTAINER),
    # users
    **{
        name: Old("", _ACL)
        for name in (
            "createUser", "updateUser", "deleteUser", "getUser", "listUser", "copyUser", "copyAcl",
            "createAcl", "updateAcl", "deleteAcl", "getAcl", "listAcl",
        )
    },
    # export
    "exportMetadata": Old("", "cluster export", _plain("cluster", "export")),
    "exportConfigs": Old("c:f:", "cluster export", _plain("cluster", "export")),
    "exportMetrics": Old(
        "c:f:", "cluster status -o json", _plain("cluster", "status", "-o", "json")
    ),
    "exportMetadataInRocksDB": Old("", _ROCKS),
    "rocksDBConfigToJson": Old("", _ROCKS),
    "exportPopRecord": Old("", "records of POP are Apache's own: use RocketMQ's own tools"),
    # lite
    **{
        name: Old("", _LITE)
        for name in (
            "getBrokerLiteInfo", "getParentTopicInfo", "getLiteTopicInfo", "getLiteClientInfo",
            "getLiteGroupInfo", "triggerLiteDispatch",
        )
    },
}  # fmt: skip
