"""PROXY headers on real connections, by themselves and before TLS."""

import asyncio
import socket
import ssl
import struct
from pathlib import Path

import pytest
import trustme

from gantrymq.net.accepting import ProxyMode
from gantrymq.net.aio import Peer, Server, Tcp, serve
from gantrymq.net.proxy_header import SIGNATURE_V2
from gantrymq.net.tls import ServerTls, TlsFiles
from tests.support import PARROT, Echo, Parrot, Wire, World, frame, until

V1 = b"PROXY TCP4 203.0.113.9 10.0.0.1 40000 10911\r\n"
V2 = (
    SIGNATURE_V2
    + struct.pack("!BBH", 0x21, 0x11, 12 + 7)
    + socket.inet_aton("203.0.113.9")
    + socket.inet_aton("10.0.0.1")
    + struct.pack("!HH", 40000, 10911)
    + b"\x02\x00\x04host"
)


async def served(tcp: World, proxy: ProxyMode, **how: object) -> Server:
    network = Tcp(proxy_header=proxy, **how)  # type: ignore[arg-type]
    return await serve(tcp.listen, PARROT, Parrot(), network=network)


async def talk(server: Server, *pieces: bytes) -> tuple[Wire, Peer]:
    """Say these, wait for the answer to the frame among them, and return both ends."""
    wire = await Wire.to(server, Tcp())
    for piece in pieces:
        wire.transport.write(piece)
        for _ in range(5):
            await asyncio.sleep(0.002)
    await until(lambda: wire.replies())
    (peer,) = server.peers
    return wire, peer


@pytest.mark.parametrize("proxy", ["optional", "required"])
@pytest.mark.parametrize("header", [V1, V2])
@pytest.mark.parametrize("size", [1000, 5])
def test_the_source_becomes_the_remote_address(
    tcp: World, proxy: ProxyMode, header: bytes, size: int
) -> None:
    async def main() -> None:
        async with await served(tcp, proxy) as server:
            data = header + frame(Echo(body=b"hello"))
            pieces = [data[at : at + size] for at in range(0, len(header), size)]
            wire, peer = await talk(server, *pieces, data[len(b"".join(pieces)) :])
            assert peer.remote == "203.0.113.9:40000"
            assert peer.socket_remote.startswith("127.0.0.1:")
            assert peer.proxied is not None
            assert peer.proxied.target == "10.0.0.1:10911"
            assert peer.proxied.entries == (((2, b"host"),) if header is V2 else ())
            assert bytes(wire.replies()[0].body) == b"hello"
            await wire.close()

    tcp.run(main())


@pytest.mark.parametrize("start", [b"", b"PROXY UNKNOWN\r\n"])
def test_without_an_address_the_sockets_own_stands(tcp: World, start: bytes) -> None:
    async def main() -> None:
        async with await served(tcp, "optional") as server:
            wire, peer = await talk(server, start + frame(Echo()))
            assert peer.remote == peer.socket_remote
            await wire.close()

    tcp.run(main())


@pytest.mark.parametrize(
    ("proxy", "start"),
    [
        ("required", b""),
        ("optional", b"PROXY TCP4 nonsense\r\n"),
        ("optional", b"PROXY " + b"x" * 200),
        ("optional", SIGNATURE_V2 + b"\x31\x11\x00\x0c" + bytes(12)),
        ("off", V1),
    ],
)
def test_what_does_not_fit_is_closed(tcp: World, proxy: ProxyMode, start: bytes) -> None:
    async def main() -> None:
        async with await served(tcp, proxy) as server:
            wire = await Wire.to(server, Tcp())
            wire.transport.write(start + frame(Echo()))
            await wire.lost
            assert not wire.got
            await until(lambda: not server.peers)

    tcp.run(main())


def test_a_header_that_is_not_finished_is_not_waited_for(tcp: World) -> None:
    async def main() -> None:
        async with await served(tcp, "optional", greeting_timeout=0.1) as server:
            wire = await Wire.to(server, Tcp())
            wire.transport.write(V2[:20])
            await wire.lost

    tcp.run(main())


def test_a_header_comes_before_tls(tcp: World, tmp_path: Path) -> None:
    authority = trustme.CA()
    path = tmp_path / "server.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(path))
    server_tls = ServerTls(files=TlsFiles(certificate=path), mode="enforcing")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)

    async def main() -> None:
        async with await served(tcp, "required", server_tls=server_tls) as server:
            loop = asyncio.get_running_loop()
            host, _, port = server.address.rpartition(":")
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as sock:
                sock.setblocking(False)
                await loop.sock_connect(sock, (host, int(port)))
                await loop.sock_sendall(sock, V1)
                wire = Wire()
                await loop.create_connection(
                    lambda: wire, sock=sock.dup(), ssl=context, server_hostname=host
                )
            wire.transport.write(frame(Echo(body=b"hello")))
            await until(lambda: wire.replies())
            (peer,) = server.peers
            assert peer.remote == "203.0.113.9:40000"
            assert peer.extra("ssl_object") is not None
            await wire.close()

    tcp.run(main())
