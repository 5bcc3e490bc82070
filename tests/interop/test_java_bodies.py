"""The JSON bodies of our catalogue against RocketMQ's own classes and their serializer.

Java makes a value and writes it, we read that into our class and write it again, and Java compares,
field by field, what it reads from the two texts. The same is done with what Java makes of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import catalogue
import jars
from catalogue import Stand
from peer import JavaPeer

from gantrymq.errors import RemoteProtocolError
from gantrymq.protocol.resets import OffsetTable, ResetClientOffsets

PER_CLASS = 40

NOT_JSON = {
    "ColdDataCgCtrService",  # its answer is an object that the service puts together
    "RecallMessageHandle.HandleV1",  # a text
    "TimerCheckpoint",  # bytes
}

NOT_IN_THE_CATALOGUE = {
    "BrokerSyncInfo",  # replication, made by nothing
    "ConsumeByWho", "OffsetMovedEvent",  # no longer sent
    "TopicConfigSerializeWrapper", "TopicQueueMappingSerializeWrapper",  # kept in files
    "TopicQueueMappingOne", "TopicRemappingDetailWrapper",  # of tools
}  # fmt: skip
"""Classes of RocketMQ that go as JSON and that nothing of ours stands for."""

ABSENT = "has to be there and is not"


def travelling(peer: JavaPeer) -> list[Stand]:
    """What stands for a class of this release that is written as JSON."""
    stands = [s for s in catalogue.stands() if is_json(s)]
    forms = ("ResetOffsetBody", "ResetOffsetBodyForC")  # two of one request's body
    stands += [Stand(ours=ResetClientOffsets, java=java, code=220) for java in forms]
    found = peer.attempt("bodies.find", [stand.java for stand in stands])
    missing = [stand.java for stand, (there, _) in zip(stands, found, strict=True) if not there]
    assert missing == [] or peer.version != jars.CURRENT
    return [stand for stand in stands if stand.java not in missing]


def is_json(stand: Stand) -> bool:
    no_class = (
        stand.java.isupper() or "Header" in stand.java
    )  # a code's name; see test_java_headers
    return not (no_class or stand.java in NOT_JSON or stand.ours is OffsetTable)


def made(peer: JavaPeer, stand: Stand, rng: Random, *, complete: bool) -> list[bytes]:
    asked = {"class": stand.java, "complete": complete}
    return peer.ask(
        "bodies.make", [asked | {"seed": rng.getrandbits(32)} for _ in range(PER_CLASS)]
    )


def differences(
    peer: JavaPeer, stand: Stand, texts: list[bytes], rewritten: list[bytes]
) -> list[list[str]]:
    """Path, value in the first and in the second text, for each difference that Java sees."""
    pairs = zip(texts, rewritten, strict=True)
    found = peer.ask(
        "bodies.compare", [{"class": stand.java, "one": a, "other": b} for a, b in pairs]
    )
    return [difference for each in found for difference in each]


def test_complete_bodies_come_back_equal(peer: JavaPeer, rng: Random) -> None:
    stands = travelling(peer)
    assert len(stands) > 40
    for stand in stands:
        texts = made(peer, stand, rng, complete=True)
        rewritten = [stand.reread(text) for text in texts]
        assert differences(peer, stand, texts, rewritten) == [], stand.label()
        echoes = peer.ask("bodies.echo", [{"class": stand.java, "body": b} for b in rewritten])
        again = [
            stand.reread(echo) for echo in echoes
        ]  # by Java's eyes, to which sets have no order
        assert differences(peer, stand, rewritten, again) == [], stand.label()


def test_bodies_with_members_left_out(peer: JavaPeer, rng: Random) -> None:
    """Where Java has null we may have the default that we declare, or refuse the body."""
    for stand in travelling(peer):
        texts = made(peer, stand, rng, complete=False)
        readable = [text for text in texts if lacks_nothing(stand, text)]
        rewritten = [stand.write(stand.read(text)) for text in readable]
        found = differences(peer, stand, readable, rewritten)
        assert [each for each in found if each[1] != "null"] == [], stand.label()


def lacks_nothing(stand: Stand, text: bytes) -> bool:
    try:
        stand.read(text)
    except (RemoteProtocolError, ValueError) as refused:
        assert ABSENT in str(refused), f"{stand.label()} of {text!r}"
        return False
    return True


def test_every_json_class_is_in_the_catalogue_or_on_the_list(
    peers: Callable[[str], JavaPeer],
) -> None:
    (java,) = peers(jars.CURRENT).ask("bodies.list", [None])
    stood_for = {stand.java.rpartition(".")[2] for stand in catalogue.stands()}
    assert set(java) - stood_for == NOT_IN_THE_CATALOGUE
