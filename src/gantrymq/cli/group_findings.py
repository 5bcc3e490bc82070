"""What is wrong with a consumer group, if anything: who is there, what they want, who has what.

The order of the looks is that in which one would ask: is the group there and let in; is somebody
connected; do all want the same; has every queue an owner; do the owners get on; how far behind is
it; what did it lose, give back, give up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gantrymq.cli import times
from gantrymq.cli.findings import Finding, Level
from gantrymq.errors import GantryError

if TYPE_CHECKING:
    from gantrymq.cli.verbs import Session
    from gantrymq.flows.members import Divergence, GroupMembers
    from gantrymq.flows.progress import GroupLag
    from gantrymq.model import MessageQueue
    from gantrymq.protocol.group_settings import GroupSettings
    from gantrymq.protocol.running import RunningInfo

_STILL: Final = 60.0
"""Seconds without a pull or a handler's return after which a member is said to stand still."""
_UNEVEN: Final = 0.8


@dataclass(slots=True, kw_only=True)
class Scene:
    """A group as it is now."""

    session: Session
    group: str
    settings: dict[str, GroupSettings]
    members: GroupMembers
    lag: GroupLag
    diverging: list[Divergence] = field(default_factory=list)
    running: dict[str, RunningInfo] = field(default_factory=dict)
    deaf: dict[str, GantryError] = field(default_factory=dict)
    """Members that did not say what they do."""

    def find(self, level: Level, check: str, text: str, remedy: str = "") -> Finding:
        """One finding about the group."""
        return Finding(level=level, check=check, subject=self.group, text=text, remedy=remedy)

    @property
    def owners(self) -> dict[MessageQueue, str]:
        """Which member has each queue, by their own word."""
        return {
            queue: client
            for client, info in self.running.items()
            for queue, state in info.queues.items()
            if not state.dropped
        }

    @property
    def shares(self) -> bool:
        """Whether members share the queues, and pull them."""
        from gantrymq.protocol.enums import ConsumeType, MessageModel

        there = self.members
        return (
            there.message_model is not MessageModel.BROADCASTING
            and there.consume_type is not ConsumeType.POP
        )


def look(session: Session, group: str) -> Scene:
    """See how a group is now."""
    from gantrymq.flows.members import differing, wants

    admin = session.admin
    there = admin.group_members(group)
    scene = Scene(
        session=session,
        group=group,
        settings=admin.group_settings(group),
        members=there,
        lag=admin.group_lag(group),
    )
    for member in there.members:
        try:
            scene.running[member.client_id] = admin.running_info(group, member.client_id)
        except GantryError as error:
            scene.deaf[member.client_id] = error
    scene.diverging = differing(
        {
            client: {one.topic: wants(one) for one in info.subscriptions}
            for client, info in scene.running.items()
        }
    )
    return scene


def explain_group(session: Session, group: str) -> list[Finding]:
    """What there is to say of a group; that it is well is a finding, too."""
    scene = look(session, group)
    found = [one for check in CHECKS for one in check(scene)]
    if all(one.level is Level.INFO for one in found):  # OK says it already
        found.append(scene.find(Level.OK, "group", f"{_lag_text(scene.lag)}; nothing is wrong"))
    return found


def _lag_text(lag: GroupLag) -> str:
    if lag.messages is None:
        return lag.why or f"at least {lag.known_messages:,} messages behind"
    behind = "" if not lag.seconds else f", {times.span_text(lag.seconds)}"
    return f"{lag.messages:,} messages behind{behind}"


# --- the looks ------------------------------------------------------------------------------------


def let_in(scene: Scene) -> Iterator[Finding]:
    """Brokers may have been told to give it nothing."""
    closed = [broker for broker, one in scene.settings.items() if not one.enabled]
    if closed:
        yield scene.find(
            Level.ERROR,
            "paused",
            f"{', '.join(closed)} gives it no messages (consumeEnable=false)",
            f"gantry group resume {scene.group}",
        )
    held = {(one.max_retries, one.orderly, one.retry_queues) for one in scene.settings.values()}
    if len(held) > 1:
        yield scene.find(
            Level.WARNING,
            "settings",
            "brokers keep different settings for it",
            f"gantry group describe {scene.group}, then gantry group alter {scene.group} ...",
        )


def somebody(scene: Scene) -> Iterator[Finding]:
    """Without members nothing is consumed."""
    if scene.members.members:
        return
    waiting = scene.lag.known_messages
    yield scene.find(
        Level.ERROR if waiting else Level.OK,
        "members",
        f"nobody is connected, and {waiting:,} messages are known to wait",
        "start a consumer; one that runs all the same may use another name server or namespace"
        if waiting
        else "",
    )


def agreed(scene: Scene) -> Iterator[Finding]:
    """Members that want different things lose messages."""
    for one in scene.diverging:
        yield scene.find(
            Level.ERROR,
            "divergence",
            f"{one}: what one does not want is lost, though another wants it",
            "give all members the same subscriptions, or those that differ a group of their own",
        )
    for client, error in scene.deaf.items():
        yield scene.find(
            Level.UNKNOWN, "members", f"{client} does not say what it does: {error}", ""
        )


def owned(scene: Scene) -> Iterator[Finding]:
    """Every queue needs an owner."""
    if not scene.members.members or not scene.shares or not scene.running:
        return
    owners = scene.owners
    with scene.session.reader() as reader:
        for topic in sorted(scene.members.subscriptions):
            try:
                queues = reader.queues(topic)
            except GantryError as error:
                yield scene.find(
                    Level.ERROR,
                    "topic",
                    f"it wants {topic}, which cannot be found: {error}",
                    f"gantry explain topic {topic}",
                )
                continue
            yield from _unowned(scene, topic, queues, owners)


def _unowned(
    scene: Scene, topic: str, queues: tuple[MessageQueue, ...], owners: dict[MessageQueue, str]
) -> Iterator[Finding]:
    alone = [queue for queue in queues if queue not in owners]
    if alone:
        shown = ", ".join(f"{queue.broker}:{queue.queue_id}" for queue in alone[:8])
        level = Level.UNKNOWN if scene.deaf else Level.ERROR
        yield scene.find(
            level,
            "unowned",
            f"{len(alone)} of {len(queues)} queues of {topic} have no owner: {shown}",
            "within 20 s members share anew; if it stays, one that hangs or has another "
            f"strategy or client id: gantry group members {scene.group}",
        )
    used = {owners[queue] for queue in queues if queue in owners}
    idle = len(scene.running) - len(used)
    if not alone and idle > 0 and len(scene.running) > len(queues):
        yield scene.find(
            Level.WARNING,
            "idle",
            f"{idle} of {len(scene.running)} members have no queue of {topic}: it has only "
            f"{len(queues)}",
            f"gantry topic alter {topic} --queues {len(scene.running)}, or fewer members",
        )


def getting_on(scene: Scene) -> Iterator[Finding]:
    """A member that has a queue has to pull it, and to be done with messages."""
    now = times.now_ms()
    waiting = {one.queue for one in scene.lag.queues if one.messages}
    for client, info in scene.running.items():
        for queue, state in info.queues.items():
            if queue not in waiting or state.dropped:
                continue
            if state.cached and now - state.last_consume_ms > _STILL * 1000 < now:
                since = times.span_text((now - state.last_consume_ms) / 1000)
                known = state.last_consume_ms > 0
                yield scene.find(
                    Level.ERROR,
                    "stuck",
                    f"{client} holds {state.cached} messages of {queue} and has been done with "
                    f"none for {since if known else 'as long as it runs'}",
                    f"gantry group inspect {scene.group} {client} --stack",
                )
            elif now - state.last_pull_ms > _STILL * 1000 and state.last_pull_ms > 0:
                since = times.span_text((now - state.last_pull_ms) / 1000)
                yield scene.find(
                    Level.ERROR,
                    "stuck",
                    f"{client} has not asked for {queue} for {since}",
                    "is it paused, or held up by flow control (too much in hand)?",
                )


def behind(scene: Scene) -> Iterator[Finding]:
    """How far it is, and whether one queue is to blame."""
    lag = scene.lag
    counts = [one.messages or 0 for one in lag.queues]
    total = sum(counts)
    if total:
        yield scene.find(Level.INFO, "lag", _lag_text(lag))
    if total > 1000 and len(counts) > 1 and max(counts) > _UNEVEN * total:
        worst = max(lag.queues, key=lambda one: one.messages or 0)
        yield scene.find(
            Level.WARNING,
            "skew",
            f"{max(counts):,} of {total:,} messages wait in one queue, {worst.queue}",
            "one order key with most of the messages, or one slow member: gantry group lag "
            f"{scene.group} --owners",
        )
    lost = sum(one.lost or 0 for one in lag.queues)
    if lost:
        yield scene.find(
            Level.ERROR,
            "lost",
            f"{lost:,} messages were removed by age or size before it consumed them",
            "keep them longer (fileReservedTime, or the topic's reserve.time), or consume faster",
        )
    for broker, error in lag.failures.items():
        yield scene.find(Level.UNKNOWN, "lag", f"{broker} does not answer: {error}", "")


def given_up(scene: Scene) -> Iterator[Finding]:
    """What it failed at."""
    from gantrymq.flows.previews import stored_in
    from gantrymq.protocol.names import dead_letter_topic
    from gantrymq.runtime import run_blocking

    topic = scene.session.wrapped(dead_letter_topic(scene.group))
    dead = run_blocking(stored_in(scene.session.admin.reach, topic))
    if dead:
        yield scene.find(
            Level.WARNING,
            "dead letters",
            f"{dead:,} messages failed too often and were given up",
            f"gantry dlq show {scene.group} --summary, then gantry dlq redrive {scene.group}",
        )


CHECKS: Final[tuple[Callable[[Scene], Iterator[Finding]], ...]] = (
    let_in,
    somebody,
    agreed,
    owned,
    getting_on,
    behind,
    given_up,
)
