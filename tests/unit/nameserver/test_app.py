"""A name server's own life, where that needs no broker."""

from pathlib import Path

import pytest
import trustme

from gantrymq.errors import ConfigError, ConnectionLost
from gantrymq.nameserver.app import NameServer
from gantrymq.nameserver.config import load_config
from gantrymq.net.aio import Tcp, connect
from gantrymq.net.tls import ClientTls, TlsFiles
from gantrymq.protocol.routing import GetClusterInfo
from tests.support import run_on


@pytest.fixture
def secure(tmp_path: Path) -> tuple[Path, ClientTls]:
    """RocketMQ's tls.properties for a server that takes TLS only, and what its clients need."""
    authority = trustme.CA()
    own, trust = tmp_path / "own.pem", tmp_path / "trust.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(own)
    authority.cert_pem.write_to_path(trust)
    properties = tmp_path / "tls.properties"
    properties.write_text(
        f"tls.server.mode=enforcing\ntls.server.certPath={own}\ntls.server.keyPath={own}\n"
    )
    return properties, ClientTls(files=TlsFiles(trust=trust))


def test_tls_is_set_up_from_rocketmqs_file(tmp_path, secure):
    properties, tls = secure
    flags = {
        "listen.bind": "127.0.0.1",
        "listen.port": 0,
        "listen.tls": str(properties),
        "files.data": str(tmp_path),
    }

    async def main() -> None:
        async with NameServer(load_config(flags=flags).value) as server:
            peer = await connect(server.address, network=Tcp(tls=tls))
            assert (await peer.call(GetClusterInfo(), timeout=5)).brokers == {}
            peer.close()
            await peer.wait_closed()
            plain = await connect(server.address)
            with pytest.raises(ConnectionLost):
                await plain.call(GetClusterInfo(), timeout=5)

    run_on("asyncio", main())


def test_a_missing_tls_file_is_named(tmp_path):
    config = load_config(flags={"listen.tls": str(tmp_path / "absent.properties")}).value
    with pytest.raises(ConfigError, match=r"absent\.properties"):
        NameServer(config)


@pytest.mark.parametrize("bind", ["0.0.0.0", ""])
def test_programs_here_are_told_an_address_that_they_can_reach(tmp_path, bind):
    flags = {"listen.bind": bind, "listen.port": 0, "files.data": str(tmp_path)}

    async def main() -> None:
        async with NameServer(load_config(flags=flags).value) as server:
            assert server.address.startswith("127.0.0.1:")
            peer = await connect(server.address)
            await peer.call(GetClusterInfo(), timeout=5)
            peer.close()
            await peer.wait_closed()

    run_on("asyncio", main())
