"""What goes through the broker, counted."""

import pytest

from gantrymq.broker.counting import MESSAGES, SIZE, Counts, Sum, item
from gantrymq.protocol.statistics import StatsItem


class World:
    """Counts, and clocks that go with the ticks."""

    def __init__(self):
        self.now = 100.0
        self.days = 0
        self.counts = Counts(
            cluster="east",
            now=lambda: self.now,
            clock_ms=lambda: int(self.now * 1000),
            day=lambda ms: self.days,
        )

    def tick(self, seconds=1):
        for _ in range(seconds):
            self.now += 1.0
            self.counts.tick()

    def minute(self, name, key):
        found = self.counts.find(name, key)
        return None if found is None else item(found[0].minute, found[1])

    def sum(self, name, key, window="minute"):
        found = self.counts.find(name, key)
        return None if found is None else item(getattr(found[0], window), found[1]).sum


@pytest.fixture
def world():
    return World()


def test_a_message_counts_for_its_queue_its_topic_and_the_broker(world):
    world.counts.stored("orders", 3, 2, 500)
    world.counts.stored("orders", 0, 1, 100)
    world.counts.stored("rmq_sys_wheel_timer", 0, 1, 50)
    world.tick(10)
    sums = {
        ("QUEUE_PUT_NUMS", "orders@3"): 2,
        ("QUEUE_PUT_SIZE", "orders@3"): 500,
        ("QUEUE_PUT_NUMS", "orders@0"): 1,
        ("TOPIC_PUT_NUMS", "orders"): 3,
        ("TOPIC_PUT_SIZE", "orders"): 600,
        ("BROKER_PUT_NUMS", "east"): 4,
        ("BROKER_PUT_SIZE", "east"): 650,
        ("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "east"): 3,
        ("TOPIC_PUT_NUMS", "bills"): None,
        ("QUEUE_PUT_NUMS", "orders@1"): None,
        ("QUEUE_PUT_NUMS", "orders@x"): None,
        ("QUEUE_PUT_NUMS", "orders"): None,
        ("TOPIC_PUT", "orders"): None,
        ("NOTHING_LIKE_IT", "orders"): None,
    }
    assert {asked: world.sum(*asked) for asked in sums} == sums


def test_what_a_group_reads_counts_for_it(world):
    world.counts.handed_out("billing", "orders", 3, 5, 500)
    world.counts.handed_out("audit", "orders", 3, 1, 100)
    world.tick(10)
    assert world.sum("QUEUE_GET_NUMS", "orders@3@billing") == 5
    assert world.sum("QUEUE_GET_NUMS", "orders@x@billing") is None
    assert world.sum("GROUP_GET_SIZE", "orders@billing") == 500
    assert world.sum("BROKER_GET_NUMS", "east") == 6
    assert world.sum("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", "east") == 6
    assert world.counts.get_tps("billing", "orders") == 0.5
    assert world.counts.get_tps("billing", "bills") == 0.0


def test_a_minute_is_the_last_seven_samples(world):
    for _ in range(20):
        world.counts.stored("orders", 0, 3, 30)
        world.counts.stored("orders", 0, 1, 10)
        world.tick(10)
    found = world.minute("TOPIC_PUT_NUMS", "orders")
    assert found == StatsItem(sum=24, tps=0.4, average=2.0)
    assert world.counts.put_tps("orders") == 0.4
    assert world.minute("TOPIC_PUT_SIZE", "orders").average == 20.0


def test_where_nothing_happens_any_more_the_window_empties(world):
    world.counts.stored("orders", 0, 1, 10)
    world.tick(10)
    assert world.sum("TOPIC_PUT_NUMS", "orders") == 1
    world.tick(60)
    assert world.minute("TOPIC_PUT_NUMS", "orders") == StatsItem()
    world.tick(300)
    world.counts.stored("orders", 0, 1, 10)
    world.tick(10)
    assert world.minute("TOPIC_PUT_NUMS", "orders") == StatsItem(sum=1, tps=0.1, average=1.0)


def test_hours_and_days_have_windows_of_their_own(world):
    for _ in range(26 * 3600 // 600):
        world.counts.stored("orders", 0, 1, 10)
        world.tick(600)
    assert world.sum("TOPIC_PUT_NUMS", "orders", "hour") == 6
    assert world.sum("TOPIC_PUT_NUMS", "orders", "day") == 24 * 6


def test_what_nothing_happens_to_is_forgotten_but_not_the_brokers_own(world):
    world.counts.stored("orders", 0, 1, 10)
    world.counts.handed_out("billing", "orders", 0, 1, 10)
    world.tick(24 * 3600)
    assert world.counts.find("TOPIC_PUT_NUMS", "orders") is not None
    world.tick(3 * 3600)
    for name, key in (
        ("TOPIC_PUT_NUMS", "orders"),
        ("QUEUE_PUT_NUMS", "orders@0"),
        ("QUEUE_GET_NUMS", "orders@0@billing"),
        ("GROUP_GET_NUMS", "orders@billing"),
    ):
        assert world.counts.find(name, key) is None
    assert world.counts.totals().puts == 1
    assert world.counts.find("BROKER_PUT_NUMS", "east")[0].messages == 1


def test_windows_take_as_much_room_after_a_week_as_after_a_day():
    one = Sum()
    for now in range(0, 7 * 24 * 3_600_000, 10_000):
        one.add(1, 1, 1)
        one.sample_minute(now)
        if now % 600_000 == 0:
            one.sample_hour(now)
        if now % 3_600_000 == 0:
            one.sample_day(now)
    assert [len(one.minute), len(one.hour), len(one.day)] == [28, 28, 100]


def test_rates_of_ten_seconds_a_minute_and_ten(world):
    assert world.counts.tps("puts") == "  "
    for _ in range(11):
        world.counts.stored("orders", 0, 7, 70)
        world.counts.missed += 2
        world.tick()
    assert world.counts.tps("puts") == "7.0  "
    assert world.counts.tps("missed") == "2.0  "
    for _ in range(600):
        world.counts.stored("orders", 0, 1, 70)
        world.tick()
    ten, minute, long = world.counts.tps("puts").split(" ")
    assert (ten, minute) == ("1.0", "1.0")
    assert float(long) == 1.0
    world.counts.handed_out("billing", "orders", 0, 30, 70)
    world.tick()
    assert world.counts.tps("found").split(" ")[0] == "0.1"
    assert world.counts.tps("gets").split(" ")[0] == "3.0"
    assert world.counts.tps("pulls").split(" ")[0] == "0.1"


def test_totals_are_of_now(world):
    world.counts.stored("orders", 0, 2, 10)
    world.counts.handed_out("billing", "orders", 0, 1, 10)
    world.counts.missed += 1
    totals = world.counts.totals()
    assert (totals.puts, totals.put_size, totals.gets) == (2, 10, 1)
    assert (totals.found, totals.missed, totals.pulls) == (1, 1, 2)


def test_the_mornings_are_noted_when_a_day_begins(world):
    world.counts.stored("orders", 0, 5, 10)
    world.tick(10)
    assert world.counts.this_morning.puts == 0
    world.days = 1
    world.tick(10)
    assert (world.counts.yesterday_morning.puts, world.counts.this_morning.puts) == (0, 5)
    world.counts.stored("orders", 0, 2, 10)
    world.days = 2
    world.tick(10)
    assert (world.counts.yesterday_morning.puts, world.counts.this_morning.puts) == (5, 7)


def test_topics_and_groups_that_go_take_their_counts_along(world):
    for topic in ("orders", "orders2"):
        world.counts.stored(topic, 0, 1, 10)
        world.counts.handed_out("billing", topic, 0, 1, 10)
        world.counts.handed_out("audit", topic, 0, 1, 10)
    world.counts.sent_back("billing", "orders2", gave_up=True)
    world.tick(10)
    world.counts.drop_topic("orders")
    world.counts.drop_group("billing")
    for name, key in (
        ("TOPIC_PUT_NUMS", "orders"),
        ("QUEUE_PUT_NUMS", "orders@0"),
        ("GROUP_GET_NUMS", "orders@audit"),
        ("GROUP_GET_NUMS", "orders2@billing"),
        ("QUEUE_GET_NUMS", "orders2@0@billing"),
        ("SNDBCK_PUT_NUMS", "orders2@billing"),
    ):
        assert world.counts.find(name, key) is None, name
    assert world.sum("GROUP_GET_NUMS", "orders2@audit") == 1
    assert world.sum("TOPIC_PUT_NUMS", "orders2") == 1
    assert world.counts.totals().puts == 2


def test_an_empty_window_is_nothing():
    assert item(Sum().minute, MESSAGES) == StatsItem()
    one = Sum()
    one.add(1, 5, 50)
    one.sample_minute(10_000)
    assert item(one.minute, SIZE) == StatsItem(sum=50, tps=5.0, average=50.0)
