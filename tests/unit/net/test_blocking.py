"""The blocking endpoint: against a server in a thread, and against the other half of a socket pair.

With a socket pair the test plays the server, and says everything before the client asks: the
numbers of a connection's requests are 1, 2, 3.
"""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from gantrymq.errors import (
    CallTimeout,
    ClosedError,
    ConnectFailed,
    ConnectionLost,
    LocalProtocolError,
    NotSupported,
    TopicNotFound,
)
from gantrymq.net.aio import PeerOptions, Tcp
from gantrymq.net.blocking import BlockingPeer
from gantrymq.net.endings import Ending
from gantrymq.net.streams import Stream
from gantrymq.net.tls import ClientTls, ServerTls, TlsFiles
from gantrymq.protocol.base import table
from gantrymq.wire.command import RESPONSE, Command
from gantrymq.wire.connection import Connection
from tests.support import (
    PARROT,
    Echo,
    EchoReply,
    Other,
    Parrot,
    ThreadedServer,
    frame,
    server_in_a_thread,
)


@pytest.fixture
def threaded() -> Iterator[ThreadedServer]:
    with server_in_a_thread() as server:
        yield server


class Pair:
    """A client and the bare socket at its other end."""

    def __init__(self, options: PeerOptions | None = None, **how: object) -> None:
        ours, self.theirs = socket.socketpair()
        self.peer = BlockingPeer(
            Stream(ours),
            "other:1",
            options=options or PeerOptions(),
            **how,  # type: ignore[arg-type]
        )

    def say(self, *commands: Command) -> None:
        for command in commands:
            self.theirs.sendall(b"".join(Connection().encode(command)))

    def hear(self) -> list[Command]:
        self.theirs.setblocking(False)
        return list(Connection().feed(self.theirs.recv(1 << 20)))

    def __enter__(self) -> "Pair":
        return self

    def __exit__(self, *error: object) -> None:
        self.peer.close()
        self.theirs.close()


def reply(opaque: int, body: bytes = b"") -> Command:
    command = EchoReply(body=body).command()
    command.opaque, command.flag = opaque, RESPONSE
    return command


# --- with a server -------------------------------------------------------------------------------


def test_a_call_gets_its_reply(threaded: ThreadedServer) -> None:
    with BlockingPeer.connect(threaded.address) as peer:
        for body in (b"", b"hello", bytes(3_000_000)):
            assert bytes(peer.call(Echo(body=body), timeout=10).body) == body
        assert str(peer) == threaded.address


def test_refusals_and_timeouts(threaded: ThreadedServer) -> None:
    with BlockingPeer.connect(threaded.address) as peer:
        with pytest.raises(TopicNotFound, match=f"from {threaded.address}: no such topic"):
            peer.call(Echo(how="refuse later"), timeout=5)
        with pytest.raises(NotSupported):
            peer.call(Other(), timeout=5)
        text = rf"no reply from {threaded.address} in 0\.2s \(Echo orders\)"
        started = time.monotonic()
        with pytest.raises(CallTimeout, match=text):
            peer.call(Echo(how="wait"), timeout=0.2)
        assert 0.19 <= time.monotonic() - started < 5
        threaded.do(threaded.owner.gate.set)
        assert bytes(peer.call(Echo(how="wait", body=b"next"), timeout=5).body) == b"next"
        assert (peer.late, peer.calls) == (1, 0)


def test_several_calls_in_flight_finish_in_any_order(threaded: ThreadedServer) -> None:
    with BlockingPeer.connect(threaded.address) as peer:
        begun = [peer.begin(Echo(body=b"%d" % n), timeout=5) for n in range(8)]
        assert peer.calls == 8
        for n in (3, 0, 7, 1, 2, 4, 5, 6):
            assert bytes(peer.finish(begun[n]).body) == b"%d" % n
        with pytest.raises(LocalProtocolError, match="was not begun here, or has ended"):
            peer.finish(begun[0])


def test_much_at_once_does_not_stand_still(threaded: ThreadedServer) -> None:
    """Both ends write more than sockets hold, so each has to read while it writes."""
    with BlockingPeer.connect(threaded.address) as peer:
        begun = [peer.begin(Echo(body=bytes(8_000_000)), timeout=20) for _ in range(4)]
        assert [len(peer.finish(one).body) for one in begun] == [8_000_000] * 4


def test_the_server_asks_while_we_wait(threaded: ThreadedServer) -> None:
    with BlockingPeer.connect(threaded.address, PARROT, Parrot()) as peer:
        for body in (b"back", bytes(2_000_000)):
            assert bytes(peer.call(Echo(how="ask back", body=body), timeout=5).body) == body


def test_a_one_way_request_arrives(threaded: ThreadedServer) -> None:
    with BlockingPeer.connect(threaded.address) as peer:
        peer.tell(Echo(how="told"))
        peer.call(Echo(), timeout=5)
        assert threaded.owner.heard == ["told", ""]


def test_a_server_that_closes(threaded: ThreadedServer) -> None:
    with BlockingPeer.connect(threaded.address) as peer:
        begun = peer.begin(Echo(how="wait"), timeout=5)
        threaded.see(lambda: threaded.owner.waiting)
        threaded.do(lambda: [theirs.close() for theirs in threaded.server.peers])
        with pytest.raises(ConnectionLost, match=r"closed by the peer; Echo orders had waited"):
            peer.finish(begun)
        with pytest.raises(ConnectionLost, match="closed by the peer"):
            peer.call(Echo(), timeout=5)
        assert not peer.is_open


def test_nobody_there(free_port: int) -> None:
    with pytest.raises(ConnectFailed, match=f"connecting to 127.0.0.1:{free_port} failed"):
        BlockingPeer.connect(f"127.0.0.1:{free_port}")


def test_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    path, trust = tmp_path / "server.pem", tmp_path / "trust.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(path))
    authority.cert_pem.write_to_path(str(trust))
    network = Tcp(server_tls=ServerTls(files=TlsFiles(certificate=path), mode="enforcing"))
    tls = ClientTls(files=TlsFiles(trust=trust))
    options = PeerOptions(linger=0.05)  # nobody here answers the end of a TLS session
    with server_in_a_thread(network=network, options=options) as threaded:
        with BlockingPeer.connect(threaded.address, tls=tls) as peer:
            assert bytes(peer.call(Echo(body=b"hello"), timeout=5).body) == b"hello"
            begun = [peer.begin(Echo(body=bytes(5_000_000)), timeout=20) for _ in range(3)]
            assert [len(peer.finish(one).body) for one in begun] == [5_000_000] * 3
            assert peer.catch_up()
            threaded.do(lambda: [theirs.close() for theirs in threaded.server.peers])
            threaded.see(lambda: not threaded.server.peers)
            assert not peer.catch_up()
        distrustful = ClientTls(files=TlsFiles())
        with pytest.raises(ConnectFailed, match=f"TLS with {threaded.address} failed"):
            BlockingPeer.connect(threaded.address, tls=distrustful)


# --- with a socket pair --------------------------------------------------------------------------


def test_what_the_peer_asks_is_answered_before_the_reply_is_waited_for_further() -> None:
    with Pair(table=PARROT, owner=Parrot()) as pair:
        for opaque, request in ((70, Echo(body=b"q")), (71, Other()), (72, Echo(how="crash"))):
            command = request.command()
            command.opaque = opaque
            pair.say(command)
        pair.theirs.sendall(frame(Echo(how="crash later"), 73))
        pair.say(reply(1, b"a"))
        assert bytes(pair.peer.call(Echo(), timeout=5).body) == b"a"
        heard = pair.hear()
        assert [(one.opaque, one.is_response) for one in heard] == [
            (1, False),
            (70, True),
            (71, True),
            (72, True),
            (73, True),
        ]
        assert [one.code for one in heard[1:]] == [0, 3, 1, 1]
        assert "other than its Runtime" in (heard[4].remark or "")


def test_without_a_table_everything_is_refused() -> None:
    with Pair() as pair:
        pair.theirs.sendall(frame(Echo(), 9))
        pair.say(reply(1))
        pair.peer.call(Echo(), timeout=5)
        assert [(one.opaque, one.code) for one in pair.hear()[1:]] == [(9, 3)]


def test_one_way_requests_of_the_peer_are_not_answered() -> None:
    owner = Parrot()
    with Pair(table=PARROT, owner=owner) as pair:
        told = Echo(how="crash").command()
        told.flag |= 2
        pair.say(told, reply(1))
        pair.peer.call(Echo(), timeout=5)
        assert owner.heard == ["crash"]
        assert len(pair.hear()) == 1


def test_an_awaitable_that_does_not_suspend_is_fine() -> None:
    async def ready(request: Echo, _owner: object, _peer: object) -> EchoReply:
        return EchoReply(body=request.body)

    with Pair(table=table(Echo.answered_by(ready))) as pair:
        pair.theirs.sendall(frame(Echo(body=b"x"), 5))
        pair.say(reply(1))
        pair.peer.call(Echo(), timeout=5)
        assert bytes(pair.hear()[1].body) == b"x"


def test_late_and_unknown_replies_are_counted() -> None:
    with Pair() as pair:
        pair.say(reply(8), reply(9), reply(1))
        pair.peer.call(Echo(), timeout=5)
        assert pair.peer.late == 2


def test_junk_ends_the_connection() -> None:
    with Pair() as pair:
        pair.theirs.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(ConnectionLost, match="the peer broke the protocol"):
            pair.peer.call(Echo(), timeout=5)
        assert pair.peer.ending is Ending.BAD_FRAME


def test_closing() -> None:
    with Pair() as pair:
        begun = pair.peer.begin(Echo(), timeout=5)
        pair.peer.close()
        pair.peer.close()
        with pytest.raises(ClosedError, match="was closed here"):
            pair.peer.finish(begun)
        with pytest.raises(ClosedError, match="was closed here"):
            pair.peer.call(Echo(), timeout=5)


def test_a_reply_that_came_before_the_end_counts() -> None:
    with Pair() as pair:
        first = pair.peer.begin(Echo(), timeout=5)
        second = pair.peer.begin(Echo(), timeout=5)
        pair.say(reply(2, b"second"))
        pair.theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionLost):
            pair.peer.finish(first)
        assert bytes(pair.peer.finish(second).body) == b"second"


def test_a_request_that_cannot_be_written_in_time_ends_the_connection() -> None:
    with Pair() as pair:
        with pytest.raises(CallTimeout, match="no reply from other:1"):
            pair.peer.call(Echo(body=bytes(8_000_000)), timeout=0.05)
        assert pair.peer.ending is Ending.TIMED_OUT


def test_a_timeout_can_close_the_connection() -> None:
    with Pair(PeerOptions(close_after_timeout=True)) as pair:
        with pytest.raises(CallTimeout):
            pair.peer.call(Echo(), timeout=0.01)
        assert pair.peer.ending is Ending.TIMED_OUT


def test_a_peer_that_died_without_a_word_is_given_up() -> None:
    with Pair(PeerOptions(silence_timeout=0.05)) as pair:
        pair.say(reply(1))
        pair.peer.call(Echo(), timeout=5)
        with pytest.raises(CallTimeout):
            pair.peer.call(Echo(), timeout=0.01)
        assert pair.peer.is_open
        with pytest.raises(CallTimeout):
            pair.peer.call(Echo(), timeout=0.06)
        assert pair.peer.ending is Ending.UNRESPONSIVE


def test_the_deadline_holds_for_a_reply_that_drips_in() -> None:
    with Pair() as pair:
        whole = b"".join(Connection().encode(reply(1, bytes(100))))
        begun = pair.peer.begin(Echo(), timeout=0.05)
        pair.theirs.sendall(whole[:-1])
        with pytest.raises(CallTimeout):
            pair.peer.finish(begun)
        pair.theirs.sendall(whole[-1:])
        pair.say(reply(2, b"fine"))
        assert bytes(pair.peer.call(Echo(), timeout=5).body) == b"fine"


def test_catching_up_answers_what_came_meanwhile_and_notices_the_end() -> None:
    with Pair(table=PARROT, owner=Parrot()) as pair:
        assert pair.peer.catch_up()
        pair.theirs.sendall(frame(Echo(), 5))
        assert pair.peer.catch_up()
        assert [one.opaque for one in pair.hear()] == [5]
        pair.theirs.shutdown(socket.SHUT_WR)
        assert not pair.peer.catch_up()
        assert pair.peer.ending is Ending.REMOTE
