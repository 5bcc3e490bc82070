"""Queues that one member of a group has for itself."""

from gantrymq.broker import locks
from gantrymq.broker.locks import Locks
from gantrymq.model import MessageQueue
from gantrymq.protocol.locks import LockQueues, UnlockQueues
from tests.unit.broker.rig import on_loop

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(4)]
A, B, C, D = QUEUES


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_a_queue_belongs_to_who_asked_first_until_it_is_given_back():
    held = Locks(now=Clock())
    assert held.lock("billing", "c1", [A, B]) == {A, B}
    assert held.lock("billing", "c2", [B, C]) == {C}
    assert held.lock("billing", "c1", [A, B, C]) == {A, B}
    held.unlock("billing", "c2", [A, B])
    assert held.lock("billing", "c2", [A, B]) == set()
    held.unlock("billing", "c1", [A, D])
    assert held.lock("billing", "c2", [A, B]) == {A}


def test_groups_do_not_see_each_others_locks():
    held = Locks(now=Clock())
    assert held.lock("billing", "c1", [A]) == {A}
    assert held.lock("audit", "c2", [A]) == {A}
    assert (held.any_held("billing"), held.any_held("nobody")) == (True, False)


def test_a_lock_runs_out_a_minute_after_it_was_last_asked_for():
    clock = Clock()
    held = Locks(now=clock)
    held.lock("billing", "c1", [A, B])
    clock.now = 40.0
    held.lock("billing", "c1", [A])
    clock.now = 60.0
    assert held.lock("billing", "c2", [A, B]) == set()
    clock.now = 60.5
    assert held.lock("billing", "c2", [A, B]) == {B}
    clock.now = 100.5
    assert held.lock("billing", "c2", [A, B]) == {A, B}
    assert held.lock("billing", "c1", [A, B]) == set()


def test_a_group_whose_locks_have_run_out_holds_none():
    clock = Clock()
    held = Locks(now=clock)
    held.lock("billing", "c1", [A])
    clock.now = 60.0
    assert held.any_held("billing")
    held.forget()
    assert held.any_held("billing")
    clock.now = 60.1
    assert not held.any_held("billing")
    held.forget()
    clock.now = 0.0
    assert not held.any_held("billing")


def test_asking_for_nothing_holds_nothing():
    held = Locks(now=Clock())
    assert held.lock("billing", "c1", []) == set()
    assert not held.any_held("billing")
    held.unlock("billing", "c1", [A])


@on_loop
def test_the_answers(rig):
    asked = LockQueues(group="billing", client_id="c1", queues={A, B})
    assert locks.lock_queues(asked, rig.broker, rig.caller).locked == {A, B}
    others = LockQueues(group="billing", client_id="c2", queues={A, C})
    assert locks.lock_queues(others, rig.broker, rig.caller).locked == {C}
    given_back = UnlockQueues(group="billing", client_id="c1", queues={A})
    locks.unlock_queues(given_back, rig.broker, rig.caller)
    assert locks.lock_queues(others, rig.broker, rig.caller).locked == {A, C}
    assert rig.broker.locks.any_held("billing")
