"""TLS against every kind of other end; certificates are made by `trustme` for each run."""

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from gantrymq.errors import ConfigError, ConnectFailed, GantryError
from gantrymq.net.aio import ServerOptions, Tcp, connect, serve
from gantrymq.net.tls import ClientTls, ServerTls, TlsFiles, TlsMode, openssl_cipher
from tests.support import PARROT, Echo, Parrot, Wire, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Papers:
    """One authority's files, and those of another that nobody here trusts."""

    trust: Path
    server: Path
    client: Path
    stranger: Path
    other_trust: Path


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    folder = tmp_path_factory.mktemp("tls")
    ours, others = trustme.CA(), trustme.CA()
    ours.cert_pem.write_to_path(str(folder / "trust.pem"))
    others.cert_pem.write_to_path(str(folder / "other_trust.pem"))
    for name, issuer, identity in (
        ("server", ours, "127.0.0.1"),
        ("client", ours, "client@example.com"),
        ("stranger", others, "stranger@example.com"),
    ):
        write(issuer, identity, folder / f"{name}.pem")
    return Papers(
        trust=folder / "trust.pem",
        server=folder / "server.pem",
        client=folder / "client.pem",
        stranger=folder / "stranger.pem",
        other_trust=folder / "other_trust.pem",
    )


def write(issuer: trustme.CA, identity: str, path: Path) -> None:
    """A certificate and its key, in one file."""
    issuer.issue_cert(identity).private_key_and_cert_chain_pem.write_to_path(str(path))


def files(certificate: Path | None = None, trust: Path | None = None, **how: object) -> TlsFiles:
    return TlsFiles(certificate=certificate, trust=trust, **how)  # type: ignore[arg-type]


async def try_call(address: str, tls: ClientTls | None) -> str:
    """What becomes of one call: the answer, or the kind of error."""
    try:
        peer = await connect(address, network=Tcp(tls=tls))
        try:
            return bytes((await peer.call(Echo(body=b"ok"), timeout=5)).body).decode()
        finally:
            peer.close()
            await peer.wait_closed()
    except GantryError as error:
        return type(error).__name__


@pytest.mark.parametrize(
    ("mode", "client", "outcome"),
    [
        ("disabled", "plain", {"ok"}),
        ("disabled", "tls", {"ConnectFailed"}),
        ("permissive", "plain", {"ok"}),
        ("permissive", "tls", {"ok"}),
        ("enforcing", "plain", {"ConnectionLost"}),
        ("enforcing", "tls", {"ok"}),
    ],
)
def test_the_first_byte_decides(
    tcp: World, papers: Papers, mode: TlsMode, client: str, outcome: set[str]
) -> None:
    async def main() -> None:
        server_tls = ServerTls(files=files(papers.server), mode=mode)
        tls = ClientTls(files=files(trust=papers.trust)) if client == "tls" else None
        network = Tcp(server_tls=server_tls)
        async with await serve(tcp.listen, PARROT, Parrot(), network=network) as server:
            assert await try_call(server.address, tls) in outcome

    tcp.run(main())


@pytest.mark.parametrize(
    ("auth", "shown", "outcome"),
    [
        ("none", None, "ok"),
        ("none", "client", "ok"),
        ("optional", None, "ok"),
        ("optional", "client", "ok"),
        ("optional", "stranger", "refused"),
        ("require", None, "refused"),
        ("require", "client", "ok"),
        ("require", "stranger", "refused"),
    ],
)
def test_client_certificates(
    tcp: World, papers: Papers, auth: str, shown: str | None, outcome: str
) -> None:
    async def main() -> None:
        server_tls = ServerTls(
            files=files(papers.server, papers.trust),
            client_auth=auth,  # type: ignore[arg-type]
        )
        certificate = getattr(papers, shown) if shown else None
        tls = ClientTls(files=files(certificate, papers.trust))
        network = Tcp(server_tls=server_tls)
        async with await serve(tcp.listen, PARROT, Parrot(), network=network) as server:
            got = await try_call(server.address, tls)
            # TLS 1.3 clients learn of a refused certificate only when they read
            assert got == "ok" if outcome == "ok" else got in ("ConnectFailed", "ConnectionLost")

    tcp.run(main())


def test_the_server_is_checked_unless_told_otherwise(tcp: World, papers: Papers) -> None:
    async def main() -> None:
        network = Tcp(server_tls=ServerTls(files=files(papers.server)))
        async with await serve(tcp.listen, PARROT, Parrot(), network=network) as server:
            for tls, outcome in (
                (ClientTls(files=files(trust=papers.other_trust)), "ConnectFailed"),
                (ClientTls(files=files(trust=papers.trust), server_name="a.b"), "ConnectFailed"),
                (
                    ClientTls(
                        files=files(trust=papers.trust), server_name="a.b", check_hostname=False
                    ),
                    "ok",
                ),
                (ClientTls(verify=False), "ok"),
                (ClientTls(files=files(trust=papers.trust)), "ok"),
            ):
                assert await try_call(server.address, tls) == outcome

    tcp.run(main())


def test_what_failed_is_said(tcp: World, papers: Papers) -> None:
    async def main() -> None:
        network = Tcp(server_tls=ServerTls(files=files(papers.server)))
        async with await serve(tcp.listen, PARROT, Parrot(), network=network) as server:
            tls = ClientTls(files=files(trust=papers.other_trust))
            with pytest.raises(ConnectFailed, match=f"TLS with {server.address} failed.*verify"):
                await connect(server.address, network=Tcp(tls=tls))

    tcp.run(main())


def test_large_bodies_both_ways_and_the_peer_certificate(tcp: World, papers: Papers) -> None:
    async def main() -> None:
        both = files(papers.server, papers.trust)
        network = Tcp(server_tls=ServerTls(files=both, client_auth="require"))
        async with await serve(tcp.listen, PARROT, Parrot(), network=network) as server:
            tls = ClientTls(files=files(papers.client, papers.trust))
            peer = await connect(server.address, network=Tcp(tls=tls))
            body = bytes(range(256)) * 20_000
            calls = [peer.call(Echo(body=body), timeout=20) for _ in range(4)]
            assert all(bytes(reply.body) == body for reply in await asyncio.gather(*calls))
            (theirs,) = server.peers
            certificate = theirs.extra("peercert")
            assert isinstance(certificate, dict)
            assert "client@example.com" in str(certificate["subjectAltName"])
            peer.close()
            await peer.wait_closed()

    tcp.run(main())


def test_new_handshakes_use_new_files_and_broken_ones_are_left_alone(
    tcp: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0

    async def main() -> None:
        nonlocal now
        first, second = trustme.CA(), trustme.CA()
        path, trust = tmp_path / "server.pem", tmp_path / "trust.pem"
        write(first, "127.0.0.1", path)
        first.cert_pem.write_to_path(str(trust))
        server_tls = ServerTls(files=files(path), clock=lambda: now)
        client_tls = ClientTls(files=files(trust=trust), clock=lambda: now)
        network = Tcp(server_tls=server_tls)
        async with await serve(tcp.listen, PARROT, Parrot(), network=network) as server:
            old = await connect(server.address, network=Tcp(tls=client_tls))

            write(second, "127.0.0.1", path)
            assert await try_call(server.address, client_tls) == "ok", "looked at a moment ago"
            now += 1
            assert await try_call(server.address, client_tls) == "ConnectFailed"
            second.cert_pem.write_to_path(str(trust))
            now += 1
            assert await try_call(server.address, client_tls) == "ok"

            for broken in ("not a certificate", ""):
                path.write_text(broken)
                now += 1
                assert await try_call(server.address, client_tls) == "ok"
                now += 1
                assert await try_call(server.address, client_tls) == "ok"
            path.unlink()
            now += 1
            assert await try_call(server.address, client_tls) == "ok"
            assert caplog.text.count("TLS goes on as it was") == 3

            write(first, "127.0.0.1", path)
            now += 1
            assert await try_call(server.address, client_tls) == "ConnectFailed"
            await old.call(Echo(), timeout=5)
            old.close()
            await old.wait_closed()

    tcp.run(main())


def test_a_handshake_that_is_not_finished_in_time_is_ended(tcp: World, papers: Papers) -> None:
    async def main() -> None:
        network = Tcp(
            server_tls=ServerTls(files=files(papers.server)),
            first_byte_timeout=0.1,
            greeting_timeout=0.1,
        )
        async with await serve(tcp.listen, PARROT, Parrot(), network=network) as server:
            silent = await Wire.to(server, Tcp())
            begun = await Wire.to(server, Tcp())
            begun.transport.write(b"\x16\x03\x01\x02\x00\x01\x00")
            await silent.lost
            await begun.lost
            assert not server.peers
            assert await try_call(server.address, None) == "ok"

    tcp.run(main())


def test_connections_that_are_being_greeted_count_and_closing_ends_them(
    tcp: World, papers: Papers
) -> None:
    async def main() -> None:
        network = Tcp(server_tls=ServerTls(files=files(papers.server)))
        server = await serve(
            tcp.listen, PARROT, network=network, limits=ServerOptions(connections=1)
        )
        silent = await Wire.to(server, Tcp())
        refused = await Wire.to(server, Tcp())
        await refused.lost
        assert server.refused == 1
        await server.close()
        await silent.lost

    tcp.run(main())


def test_mistakes_show_at_the_start(papers: Papers, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere.pem"
    with pytest.raises(ConfigError, match=r"TLS cannot be set up from .*nowhere\.pem"):
        ServerTls(files=files(nowhere))
    with pytest.raises(ConfigError, match=r"trust\.pem"):
        ServerTls(files=files(papers.trust))
    with pytest.raises(ConfigError, match="needs a certificate"):
        ServerTls(files=files(), mode="enforcing")
    with pytest.raises(ConfigError, match="need a file of certificates to trust"):
        ServerTls(files=files(papers.server), client_auth="optional")
    with pytest.raises(ConfigError, match="no TLS protocol 'TLSv9'"):
        ClientTls(files=files(protocols=("TLSv9",)))
    with pytest.raises(ConfigError, match="no TLS cipher 'ROT13'"):
        ClientTls(files=files(ciphers=("ECDHE-RSA-AES128-GCM-SHA256", "ROT13")))
    assert ServerTls(files=files(), mode="disabled").mode == "disabled"


def test_protocols_and_ciphers_are_taken_over() -> None:
    context = ClientTls(
        files=files(
            protocols=("TLSv1.3", "TLSv1.2"), ciphers=("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",)
        )
    ).context()
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.maximum_version is ssl.TLSVersion.TLSv1_3
    names = {cipher["name"] for cipher in context.get_ciphers()}
    assert {name for name in names if not name.startswith("TLS_")} == {
        "ECDHE-RSA-AES128-GCM-SHA256"
    }


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA256", "AES128-SHA256"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("TLS_AES_128_GCM_SHA256", None),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_javas_names_for_ciphers(java: str, openssl: str | None) -> None:
    assert openssl_cipher(java) == openssl
    if openssl is not None:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).set_ciphers(openssl)
