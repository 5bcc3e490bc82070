"""Ranges of queues as partitions: nothing lost, nothing twice, and alike in size."""

import random

from gantrymq.flows.reading import Stretch
from gantrymq.model import MessageQueue
from gantrymq.spark.planning import WORTH_A_PARTITION, plan, shares
from gantrymq.spark.streaming import prorated


def stretch(broker, queue_id, start, end):
    return Stretch(MessageQueue("t", broker, queue_id), start, end)


def test_groups_cover_everything_once_and_are_alike():
    chance = random.Random(3)
    for _ in range(200):
        wanted = []
        for number in range(chance.randrange(1, 30)):
            start = chance.randrange(1000)
            end = start + chance.choice((0, 1, 50, 20_000))
            wanted.append(stretch(f"b{number % 3}", number, start, end))
        at_least = chance.choice((None, 1, 7))
        most = chance.choice((None, 5_000))
        groups = plan(wanted, at_least=at_least, at_most_each=most, parallel=4)
        covered = {}
        for group in groups:
            for queue, start, end in group:
                assert end > start
                covered.setdefault(queue, []).append((start, end))
        for queue, start, end in wanted:
            parts = sorted(covered.pop(queue, []))
            assert [a for a, _ in parts] == ([start] + [b for _, b in parts[:-1]] if parts else [])
            assert sum(b - a for a, b in parts) == end - start
        assert not covered
        sizes = [sum(end - start for _, start, end in group) for group in groups]
        if sizes:
            assert max(sizes) - min(sizes) <= 1
            assert most is None or max(sizes) <= most
            assert at_least is None or len(sizes) >= min(at_least, sum(sizes))


def test_little_is_one_partition_and_much_is_as_many_as_cores():
    assert len(plan([stretch("a", 0, 0, WORTH_A_PARTITION)], parallel=8)) == 1
    assert len(plan([stretch("a", 0, 0, 100 * WORTH_A_PARTITION)], parallel=8)) == 8
    many = [stretch("a", number, 0, 10) for number in range(500)]
    assert len(plan(many, parallel=8)) == 1
    assert plan([], parallel=8) == []


def test_shares_go_by_broker_under_the_names_that_brokers_know():
    group = [stretch("a", 0, 0, 5), stretch("b", 0, 0, 5), stretch("a", 1, 3, 4)]
    wire = {one.queue: one.queue._replace(topic="space%t") for one in group}
    found = shares(group, wire, {"a": {0: "host:1"}})
    assert [[one.queue.broker for one in share.stretches] for share in found] == [["a", "a"], ["b"]]
    assert found[0].addresses == {0: "host:1"}
    assert found[1].addresses == {}
    assert {one.queue.topic for share in found for one in share.stretches} == {"space%t"}


def test_limits_are_shared_by_what_queues_have():
    queues = [MessageQueue("t", "a", number) for number in range(4)]
    sizes = dict(zip(queues, (1000, 10, 10, 1), strict=True))
    assert prorated(sizes, 2000) == sizes
    chance = random.Random(5)
    for _ in range(300):
        sizes = {queue: chance.randrange(1, 10_000) for queue in queues}
        most = chance.randrange(1, sum(sizes.values()))
        found = prorated(sizes, most)
        assert sum(found.values()) == most
        assert all(0 <= found[queue] <= sizes[queue] for queue in queues)
