"""How far groups have come, and where queues begin and end."""

import pytest

from gantrymq.broker import offsets
from gantrymq.broker.keeping import Keeper
from gantrymq.broker.offsets import FILE, Offsets
from gantrymq.protocol.enums import Boundary
from gantrymq.protocol.group_settings import GroupSettings
from gantrymq.protocol.offsets import (
    GetAllConsumerOffsets,
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    QueryConsumerOffset,
    QueryCorrectionOffsets,
    SearchOffset,
    UpdateConsumerOffset,
)
from tests.support import run_on
from tests.unit.broker.rig import START_MS, MemoryFiles, on_loop, refusal

LARGEST = 2**63 - 1


def table(files=None, clock_ms=lambda: START_MS):
    return Offsets(keeper=Keeper(files or MemoryFiles()), clock_ms=clock_ms)


def query(rig, group="billing", queue_id=0, **how):
    request = QueryConsumerOffset(group=group, topic="orders", queue_id=queue_id, **how)
    return offsets.query_consumer_offset(request, rig.broker, rig.caller).offset


def update(rig, offset, **how):
    asked = {"group": "billing", "topic": "orders", "queue_id": 0} | how
    request = UpdateConsumerOffset(offset=offset, **asked)
    return offsets.update_consumer_offset(request, rig.broker, rig.caller)


def with_messages(rig, count=1, *, every_ms=1000, **how):
    for _ in range(count):
        rig.send(**how)
        rig.now_ms += every_ms


# --- the table ------------------------------------------------------------------------------------


def test_what_is_committed_is_known_by_group_topic_and_queue():
    held = table()
    assert held.query("billing", "orders", 0) is None
    held.commit("billing", "orders", 0, 5)
    held.commit("billing", "orders", 1, 7)
    held.commit("audit", "orders", 0, 9)
    held.commit("billing", "bills", 0, 1)
    assert held.query("billing", "orders", 0) == 5
    assert held.of("billing", "orders") == {0: 5, 1: 7}
    held.commit("billing", "orders", 0, 2)
    assert held.query("billing", "orders", 0) == 2
    assert held.topics_of("billing") == ["orders", "bills"]
    assert held.groups_of("orders") == ["billing", "audit"]
    assert held.groups() == ["billing", "audit"]
    held.pulled("billing", "orders", 0, 11)
    assert held.query_pulled("billing", "orders", 0) == 11
    assert held.query_pulled("billing", "orders", 1) is None


def test_a_reset_is_taken_once_and_until_then_commits_are_passed_over():
    held = table()
    held.commit("billing", "orders", 0, 50)
    assert held.take_reset("billing", "orders", 0) is None
    held.reset("billing", "orders", 0, 10)
    held.reset("billing", "orders", 1, 20)
    held.commit("billing", "orders", 0, 51)
    held.commit("billing", "orders", 2, 3)
    assert held.query("billing", "orders", 0) == 10
    assert held.has_reset("billing", "orders", 0)
    assert held.take_reset("audit", "orders", 0) is None
    assert held.take_reset("billing", "orders", 0) == 10
    assert held.take_reset("billing", "orders", 0) is None
    held.commit("billing", "orders", 0, 11)
    assert held.of("billing", "orders") == {0: 11, 1: 20, 2: 3}
    assert held.take_reset("billing", "orders", 1) == 20


def test_groups_and_topics_are_forgotten_with_everything_about_them():
    held = table()
    for group in ("billing", "audit"):
        for topic in ("orders", "bills"):
            held.commit(group, topic, 0, 1)
            held.pulled(group, topic, 0, 2)
    held.reset("billing", "orders", 0, 0)
    held.drop_group("billing")
    held.drop_topic("bills")
    assert held.snapshot().offsets == {"orders@audit": {0: 1}}
    assert held.query_pulled("billing", "orders", 0) is None
    assert held.take_reset("billing", "orders", 0) is None


def test_a_clone_goes_its_own_way():
    held = table()
    held.commit("billing", "orders", 0, 5)
    held.clone("billing", "audit", "orders")
    held.clone("billing", "audit", "bills")
    held.commit("audit", "orders", 0, 6)
    assert held.query("billing", "orders", 0) == 5
    assert held.topics_of("audit") == ["orders"]


def test_the_version_counts_every_five_hundredth_commit():
    held = table()
    for number in range(1_499):
        held.commit("billing", "orders", 0, number)
    assert held.snapshot().version.counter == 2
    held.reset("billing", "orders", 0, 1)
    assert held.snapshot().version.counter == 3


def test_the_file_is_rocketmqs_and_is_written_only_when_something_changed():
    async def main():
        files = MemoryFiles()
        keeper = Keeper(files)
        held = Offsets(keeper=keeper, clock_ms=lambda: START_MS)
        held.keep()
        held.commit("billing", "orders", 0, 12)
        held.commit("billing", "orders", 1, 9)
        held.pulled("billing", "orders", 0, 30)
        held.reset("audit", "orders", 0, 1)
        held.keep()
        held.keep()
        await keeper.kept(FILE)
        assert files.saves == [FILE]
        assert files.trees[FILE] == {
            "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": START_MS},
            "groupTopicMap": {"billing": ["orders"], "audit": ["orders"]},
            "offsetTable": {"orders@billing": {0: 12, 1: 9}, "orders@audit": {0: 1}},
        }
        again = table(files)
        again.load()
        assert again.of("billing", "orders") == {0: 12, 1: 9}
        assert again.take_reset("audit", "orders", 0) is None

    run_on("asyncio", main())


def test_a_file_of_rocketmq_is_read():
    files = MemoryFiles()
    files.trees[FILE] = {
        "offsetTable": {"orders@billing": {"0": 12, "1": 9}, "odd": {"0": 1}, "a@b@c": {"0": 1}}
    }
    held = table(files)
    held.load()
    assert held.snapshot().offsets == {"orders@billing": {0: 12, 1: 9}}


# --- answers --------------------------------------------------------------------------------------


@on_loop
def test_a_committed_offset_is_answered(rig):
    with_messages(rig)
    rig.broker.groups.settings("billing")
    update(rig, 5)
    update(rig, 3)
    assert query(rig) == 3
    assert query(rig, zero_if_unknown=False) == 3


@on_loop
def test_a_new_group_begins_at_nought_while_the_first_message_is_at_hand(rig):
    boot = (22, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")
    assert refusal(lambda: query(rig)) == boot
    with_messages(rig)
    assert query(rig) == 0
    assert refusal(lambda: query(rig, queue_id=1)) == boot
    assert refusal(lambda: query(rig, zero_if_unknown=False)) == (
        22,
        "Not found, do not set to zero, maybe this group boot first",
    )
    assert query(rig, zero_if_unknown=True) == 0


@on_loop
def test_commits_of_strangers_and_for_strange_queues_are_refused(rig):
    with_messages(rig)
    assert refusal(lambda: update(rig, 1)) == (26, "Group billing not exist!")
    rig.broker.groups.put([GroupSettings(group="billing")])
    assert refusal(lambda: update(rig, 1, topic="bills")) == (17, "Topic bills not exist!")
    for wrong in ({"queue_id": 4}, {"queue_id": -1}, {"offset": -1}):
        code, _ = refusal(lambda wrong=wrong: update(rig, **{"offset": 1} | wrong))
        assert code == 29
    assert rig.broker.offsets.groups() == []


@on_loop
def test_a_queue_that_the_topic_had_once_can_still_be_committed(rig):
    with_messages(rig, queue_id=3)
    rig.broker.groups.settings("billing")
    shrunk = rig.broker.topics.table["orders"]
    shrunk.read_queues = shrunk.write_queues = 1
    update(rig, 1, queue_id=3)
    assert query(rig, queue_id=3) == 1


@on_loop
def test_a_commit_while_a_reset_waits_is_answered_and_passed_over(rig):
    with_messages(rig)
    rig.broker.groups.settings("billing")
    rig.broker.offsets.reset("billing", "orders", 0, 0)
    assert update(rig, 1).remark == "Offset has been previously reset"
    assert query(rig) == 0


@on_loop
def test_where_a_queue_begins_and_ends(rig):
    def bounds(topic="orders", queue_id=0):
        asked = {"topic": topic, "queue_id": queue_id}
        return (
            offsets.get_min_offset(GetMinOffset(**asked), rig.broker, rig.caller).offset,
            offsets.get_max_offset(GetMaxOffset(**asked), rig.broker, rig.caller).offset,
            offsets.get_earliest_store_time(
                GetEarliestStoreTime(**asked), rig.broker, rig.caller
            ).timestamp_ms,
        )

    with_messages(rig, 3)
    assert bounds() == (0, 3, START_MS)
    assert bounds(queue_id=1) == (0, 0, -1)
    assert bounds("bills") == (0, 0, -1)


@pytest.mark.parametrize(
    ("after_ms", "lower", "upper"), [(-1, 0, 0), (0, 0, 0), (1, 1, 0), (2000, 2, 2), (2001, 3, 2)]
)
def test_offsets_by_time(after_ms, lower, upper):
    @on_loop
    def check(rig):
        with_messages(rig, 3)

        def at(boundary, queue_id=0):
            request = SearchOffset(
                topic="orders",
                queue_id=queue_id,
                timestamp_ms=START_MS + after_ms,
                boundary=boundary,
            )
            return offsets.search_offset(request, rig.broker, rig.caller).offset

        assert (at(Boundary.LOWER), at(Boundary.UPPER)) == (lower, upper)
        assert (at(Boundary.LOWER, 1), at(Boundary.UPPER, 1)) == (0, 0)

    check()


@on_loop
def test_the_least_offsets_of_all_groups(rig):
    with_messages(rig, 5)
    commit = rig.broker.offsets.commit
    for group, first, second in (("a", 5, 3), ("b", 4, 7), ("c", 1, 1)):
        commit(group, "orders", 0, first)
        commit(group, "orders", 1, second)
        commit(group, "bills", 0, 0)

    def ask(compare, *without):
        request = QueryCorrectionOffsets(
            topic="orders", compare_group=compare, filter_groups=without or None
        )
        return offsets.query_correction_offsets(request, rig.broker, rig.caller).offsets

    assert ask("nobody") == {0: 1, 1: 1}
    assert ask("nobody", "c") == {0: 4, 1: 3}
    assert ask("a", "c") == {0: 4, 1: 3}
    assert ask("b", "a", "c") == {0: 4, 1: 7}
    assert ask("c", "a", "b", "c") == {0: LARGEST, 1: LARGEST}
    assert ask("c", "c") == {0: LARGEST, 1: LARGEST}


@on_loop
def test_everything_at_once(rig):
    rig.broker.offsets.commit("billing", "orders", 0, 4)
    request = GetAllConsumerOffsets()
    answer = offsets.get_all_consumer_offsets(request, rig.broker, rig.caller)
    assert answer.offsets == {"orders@billing": {0: 4}}
    assert answer.version.timestamp_ms == START_MS
