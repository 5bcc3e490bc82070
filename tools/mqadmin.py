"""What each command of RocketMQ's `mqadmin` does with Gantry: the table of the reference.

`tests/interop/test_mqadmin.py` takes the list of commands from the jar itself, runs every one of
them as it stands here, and fails where the jar has one that is not here, where one that should work
does not, or where one that is refused does not say why. `tools/gen_reference.py` makes the page.

In the words of a command `{b}` is the broker's address, `{n}` the name server's, `{id}` and
`{unique}` are the ids of the first message, `{traced}` is that of one with a trace, `{out}` a
directory, `{log}` a file of the commit log, and `{topic}` an option that 4.9.7 does not have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gantrymq.protocol.unsupported import REASONS
from gantrymq.wire.codes import RequestCode


@dataclass(frozen=True, slots=True)
class Line:
    """One way to use a command, and words that it has to print."""

    words: str
    prints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """A command of mqadmin."""

    name: str
    does: str
    lines: tuple[Line, ...]
    refused: str | None = None
    """Why it is not supported."""
    code: RequestCode | None = None
    """The request that is refused, where the tool shows that."""
    note: str = ""

    @property
    def verdict(self) -> str:
        """What the table says of it."""
        told = "OK" if self.refused is None else f"not supported: {self.refused}"
        return f"{told} ({self.note})" if self.note else told


def works(name: str, does: str, *lines: tuple[str, tuple[str, ...]], note: str = "") -> Command:
    """A command that does here what it does with RocketMQ."""
    return Command(name, does, tuple(Line(*line) for line in lines), note=note)


def refuses(name: str, does: str, words: str, code: int, *prints: str, note: str = "") -> Command:
    """A command whose request is answered with "not supported"."""
    known = RequestCode(code)
    line = Line(words, prints)
    return Command(name, does, (line,), refused=REASONS[known], code=known, note=note)


def without(name: str, does: str, words: str, why: str, *prints: str) -> Command:
    """A command that finds nothing to work on, before it asks anybody."""
    return Command(name, does, (Line(words, prints),), refused=why)


_HIDDEN: Final = 'the tool itself shows no more than "error"'

COMMANDS: Final[tuple[Command, ...]] = (
    # --- topics
    works(
        "updateTopic",
        "make or change a topic",
        ("-b {b} -t made -r 4 -w 4", ("create topic to",)),
    ),
    works(
        "updateTopicList",
        "make or change the topics of a file",
        ("-b {b} -f {out}/topics.json", ("submit batch of topic config",)),
    ),
    works(
        "updateTopicPerm",
        "allow or forbid reading and writing",
        ("-b {b} -t made -p 4", ("update topic perm",)),
    ),
    works(
        "updateOrderConf",
        "keep the order of a topic's queues",
        ("-t made -v broker-a:4 -m put", ("update orderConf success",)),
        ("-t made -m get", ("broker-a:4",)),
        ("-t made -m delete", ("delete orderConf success",)),
    ),
    works(
        "deleteTopic",
        "delete a topic",
        ("-c DefaultCluster -t made", ("delete topic [made] from cluster",)),
    ),
    works(
        "topicList",
        "name all topics",
        ("", ("orders", "%RETRY%GID_orders", "TBW102")),
        ("-c", ("orders", "GID_orders")),
    ),
    works(
        "topicRoute",
        "show where a topic is",
        ("-t orders", ('"brokerName":"broker-a"', '"readQueueNums":4')),
    ),
    works("topicStatus", "show how full a topic is", ("-t orders", ("broker-a", "Min Offset"))),
    works("topicClusterList", "name a topic's clusters", ("-t orders", ("DefaultCluster",))),
    works("statsAll", "show the rates of all topics and groups", ("-t orders", ("GID_orders",))),
    works("allocateMQ", "share queues among addresses", ("-t orders -i ipA,ipB", ("ipA", "ipB"))),
    refuses(
        "updateStaticTopic",
        "make a topic of a fixed number of queues",
        "-t fixed -qn 4 -b broker-a -mf {out}/none",
        513,
    ),
    without(
        "remappingStaticTopic",
        "move the queues of such a topic",
        "-t fixed -b broker-a",
        REASONS[RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC],
        "No topic route to do the remapping",
    ),
    # --- groups
    works(
        "updateSubGroup",
        "make or change a consumer group",
        ("-b {b} -g GID_made -r 5", ("create subscription group to",)),
    ),
    works(
        "updateSubGroupList",
        "make or change the groups of a file",
        ("-b {b} -f {out}/groups.json", ("submit batch of group config",)),
    ),
    works(
        "getConsumerConfig",
        "show the settings of a group",
        ("-g GID_made", ("retryMaxTimes", "5")),
    ),
    works(
        "setConsumeMode",
        "say whether a group pulls or pops",
        ("-b {b} -t orders -g GID_made -m PULL", ("set consume mode to",)),
        note="PULL only: POP is not offered yet",
    ),
    works(
        "consumerProgress",
        "show how far groups are behind",
        ("", ("GID_orders",)),
        ("-g GID_orders", ("orders", "broker-a", "Diff Total: 17")),
    ),
    works(
        "consumerConnection",
        "show who is in a group",
        ("-g GID_orders", ("admin-test", "CONSUME_PASSIVELY", "CLUSTERING")),
    ),
    works(
        "consumerStatus",
        "show what the members of a group are doing",
        ("-g GID_seen", ("V5_5_0",)),
    ),
    works(
        "producerConnection",
        "show who sends in a group",
        ("-g PID_orders -t orders", ("admin-test",)),
    ),
    works("producer", "show all producers", ("-b {b}", ("PID_orders",))),
    works(
        "brokerConsumeStats",
        "show how far all groups of a broker are behind",
        ("-b {b}", ("GID_orders", "Diff Total: ")),
    ),
    works(
        "cloneGroupOffset",
        "copy offsets to another group",
        ("-s GID_orders -d GID_made -t orders", ("clone group offset success",)),
    ),
    works(
        "resetOffsetByTime",
        "move a group to a time",
        ("-g GID_orders -t orders -s 0", ("broker-a",)),
    ),
    works(
        "skipAccumulatedMessage",
        "move a group to the end",
        ("-g GID_orders -t orders", ("broker-a",)),
    ),
    works(
        "deleteSubGroup",
        "delete a consumer group",
        ("-b {b} -g GID_made -r true", ("delete subscription group [GID_made]",)),
    ),
    works("startMonitoring", "watch for groups that are behind, until stopped", ("", ())),
    # --- messages
    works(
        "sendMessage",
        "send a text",
        ("-t other -p hello -k k1 -c tagA", ("SEND_OK",)),
    ),
    works(
        "consumeMessage",
        "read from a queue",
        ("-t orders -b broker-a -i 0 -o 0 -c 2", ("body 0", "body 4")),
    ),
    works("queryMsgById", "find a message by its offset id", ("-i {id} {topic}", ("key0",))),
    works(
        "queryMsgByUniqueKey",
        "find a message by its unique id",
        ("-t orders -i {unique}", ("key0", "Queue Offset:")),
    ),
    works("queryMsgByKey", "find messages by key", ("-t orders -k key3", ("#Message ID",))),
    works(
        "queryMsgByOffset",
        "show the message at a place",
        ("-t orders -b broker-a -i 0 -o 0", ("key0",)),
    ),
    works(
        "queryMsgTraceById",
        "show the trace of a message",
        ("-i {traced}", ("Pub", "PID_traced", "Sub", "GID_seen", "success")),
    ),
    works("printMsg", "print the messages of a topic", ("-t orders", ("body 0", "body 19"))),
    works(
        "printMsgByQueue",
        "print the messages of a queue",
        ("-t orders -a broker-a -i 0 -p true -d true", ("body 0",)),
    ),
    works(
        "queryCq",
        "look into a consume queue",
        ("-t orders -q 0 -i 0 -c 3 -b {b}", ("max: 5, min: 0", "physicSize")),
    ),
    works("checkMsgSendRT", "measure sending to a topic", ("-t other -a 3 -s 100", ("true",))),
    works(
        "sendMsgStatus", "measure sending to a broker", ("-b broker-a -c 3 -s 100", ("SEND_OK",))
    ),
    works(
        "clusterRT",
        "measure sending to all brokers, until stopped",
        ("-a 2 -i 1", ("#RT", "DefaultCluster            broker-a")),
    ),
    works(
        "dumpCompactionLog",
        "print the records of a file",
        ("-f {log}", ("KEYS=key0",)),
        note="it reads files of the commit log as well",
    ),
    # --- the cluster, brokers, name servers
    works(
        "clusterList",
        "show the brokers of all clusters",
        ("", ("broker-a", "V5_5_0", "DefaultCluster")),
        ("-m", ("broker-a",)),
    ),
    works(
        "brokerStatus",
        "show what a broker is doing",
        ("-b {b}", ("bootTimestamp", "msgPutTotalTodayNow", "commitLogDirCapacity")),
        ("-c DefaultCluster", ("putTps", "scheduleMessageOffset_18", "timerDequeueTps")),
    ),
    works(
        "getBrokerConfig",
        "show the settings of a broker",
        ("-b {b}", ("brokerName", "flushDiskType", "brokerRole")),
        ("-c DefaultCluster", ("brokerPermission",)),
    ),
    works(
        "updateBrokerConfig",
        "change a setting of a broker",
        ("-b {b} -k maxMessageSize -v 4194304", ("update broker config success",)),
    ),
    works("cleanExpiredCQ", "drop what queues have of lost messages", ("-b {b}", ("success",))),
    works("cleanUnusedTopic", "drop queues of deleted topics", ("-b {b}", ("success",))),
    works(
        "deleteExpiredCommitLog", "drop files that are past their time", ("-b {b}", ("success",))
    ),
    works(
        "wipeWritePerm",
        "take a broker out of sending",
        ("-b broker-a", ("wipe write perm of broker[broker-a]",)),
    ),
    works(
        "addWritePerm",
        "put it back",
        ("-b broker-a", ("add write perm of broker[broker-a]",)),
    ),
    works(
        "haStatus",
        "show the replicas of a master",
        ("-b {b}", ("#SlaveNum\t0",)),
        ("-c DefaultCluster", ("#MasterCommitLogMaxOffset",)),
        note="there are none",
    ),
    works(
        "resetMasterFlushOffset",
        "say how far a replica's master is",
        ("-b {b} -o 0", ("reset master flush offset to 0 success",)),
        note="nothing to do for a master, as with RocketMQ",
    ),
    works(
        "switchTimerEngine",
        "say what keeps timed messages",
        ("-b {b} -e F", ("switchTimerEngine to FILE_TIME_WHEEL success",)),
        note="F, files; there is no RocksDB for R",
    ),
    works(
        "exportConfigs",
        "write the settings of brokers to a file",
        ("-c DefaultCluster -f {out}", ("success",)),
    ),
    works(
        "exportMetadata",
        "write topics and groups to a file",
        ("-c DefaultCluster -f {out}", ("success",)),
    ),
    works(
        "exportMetrics",
        "write rates and sizes to a file",
        ("-c DefaultCluster -f {out}", ("success",)),
    ),
    works("getNamesrvConfig", "show the settings of name servers", ("", ("kvConfigPath",))),
    works(
        "updateNamesrvConfig",
        "change a setting of name servers",
        ("-k orderMessageEnable -v false", ("update name server config success",)),
    ),
    works(
        "updateKvConfig",
        "keep a value under a key",
        ("-s N -k k -v v", ("create or update kv config to namespace success",)),
    ),
    works(
        "deleteKvConfig",
        "forget it",
        ("-s N -k k", ("delete kv config from namespace success",)),
    ),
    # --- what there is none of
    refuses("addBroker", "start a broker in a container", "-c {b} -b {out}/broker.conf", 902),
    refuses(
        "removeBroker", "stop a broker in a container", "-c {b} -b DefaultCluster:broker-a:0", 903
    ),
    refuses("getSyncStateSet", "show which replicas are in step", "-a {n} -b broker-a", 1005),
    refuses("getBrokerEpoch", "show when masters changed", "-b broker-a", 1007),
    refuses("getControllerMetaData", "show the controller's state", "-a {n}", 1005),
    refuses("getControllerConfig", "show the controller's settings", "-a {n}", 1010),
    refuses("updateControllerConfig", "change a setting of it", "-a {n} -k a -v b", 1009),
    refuses(
        "electMaster", "elect another master", "-a {n} -b 0 -bn broker-a -c DefaultCluster", 1005
    ),
    refuses(
        "cleanBrokerMetadata", "forget a broker", "-a {n} -bn broker-a -c DefaultCluster", 1005
    ),
    refuses("getColdDataFlowCtrInfo", "show limits on cold reads", "-b {b}", 2003),
    refuses("updateColdDataFlowCtrGroupConfig", "limit them", "-b {b} -g GID_orders -v 1000", 2001),
    refuses("removeColdDataFlowCtrGroupConfig", "drop such a limit", "-b {b} -g GID_orders", 2002),
    refuses("setCommitLogReadAheadMode", "say how the log is read ahead", "-b {b} -m 0", 2004),
    refuses("createUser", "make a user", "-b {b} -u alice -p secret123 -t Normal", 3001),
    refuses("updateUser", "change a user", "-b {b} -u alice -p secret456", 3002),
    refuses("deleteUser", "delete a user", "-b {b} -u alice", 3003),
    refuses("getUser", "show a user", "-b {b} -u alice", 3004),
    refuses("listUser", "show all users", "-b {b}", 3005),
    refuses("copyUser", "copy users to another broker", "-f {b} -t {b}", 3005),
    refuses(
        "createAcl",
        "allow or deny something",
        "-b {b} -s User:alice -r Topic:orders -a Pub -d Allow",
        3006,
    ),
    refuses(
        "updateAcl",
        "change such a rule",
        "-b {b} -s User:alice -r Topic:orders -a Pub,Sub -d Allow",
        3007,
    ),
    refuses("deleteAcl", "delete such a rule", "-b {b} -s User:alice", 3008),
    refuses("getAcl", "show the rules of a user", "-b {b} -s User:alice", 3009),
    refuses("listAcl", "show all rules", "-b {b}", 3010),
    refuses("copyAcl", "copy rules to another broker", "-f {b} -t {b}", 3010),
    refuses("exportPopRecord", "write what POP consumers hold", "-b {b} -d true", 200056),
    without(
        "exportMetadataInRocksDB",
        "read settings out of RocksDB files",
        "-p {out}/rocks -t topics",
        REASONS[RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON],
        "RocksDB path is invalid",
    ),
    refuses(
        "rocksDBConfigToJson",
        "have a broker write its settings",
        "-c DefaultCluster -t topics",
        355,
    ),
    refuses("checkRocksdbCqWriteProgress", "compare files with RocksDB", "-c DefaultCluster", 354),
    works(
        "getBrokerLiteInfo",
        "count lite topics",
        ("-b {b}", ("default",)),
        note="there are none",
    ),
    refuses("getParentTopicInfo", "count one topic's", "-p orders", 200075, "error", note=_HIDDEN),
    refuses("getLiteTopicInfo", "show one", "-p orders -l x", 200076, "error", note=_HIDDEN),
    refuses(
        "getLiteClientInfo",
        "show what a client wants of them",
        "-p orders -g GID_orders -c nobody",
        200077,
        "error",
        note=_HIDDEN,
    ),
    refuses(
        "getLiteGroupInfo",
        "show how far a group is behind",
        "-p orders -g GID_orders",
        200078,
        "error",
        note=_HIDDEN,
    ),
    refuses(
        "triggerLiteDispatch",
        "have them looked through",
        "-p orders -g GID_orders",
        200079,
        "error",
        note=_HIDDEN,
    ),
)

OLD: Final[tuple[Command, ...]] = (
    refuses("updateAclConfig", "change a user", "-b {b} -a alice -s secret123", 50),
    refuses("deleteAclConfig", "delete a user", "-b {b} -a alice", 51),
    refuses("clusterAclConfigVersion", "show how old the rules are", "-b {b}", 52),
    refuses("updateGlobalWhiteAddr", "let addresses in", "-b {b} -g 10.0.0.1", 53),
    refuses("getAclConfig", "show all rules", "-b {b}", 54),
)
"""Commands that 4.9.7 has and 5.5.0 has not."""
