"""How clients reach servers: with TLS, in a namespace, by a URL or a variable."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

import gantrymq as gantry
from gantrymq.errors import SendFailed
from tests.cluster.consumers import Site
from tests.support import world


@pytest.fixture
def papers(tmp_path: Path) -> tuple[Path, Path]:
    """A broker's certificate with its key, and what it goes back to."""
    authority = trustme.CA()
    own, trust = tmp_path / "own.pem", tmp_path / "trust.pem"
    authority.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(own)
    authority.cert_pem.write_to_path(trust)
    return own, trust


def tls(directory: Path, own: Path, mode: str) -> str:
    file = directory / f"{mode}.properties"
    file.write_text(
        f"tls.server.mode={mode}\ntls.server.certPath={own}\ntls.server.keyPath={own}\n"
    )
    return str(file)


def send_and_take(url: str, topic: str) -> bytes:
    """What comes of one message, without asyncio."""
    with gantry.Producer(url, group="shop", send_timeout=10) as producer:
        producer.send(topic, b"behind a lock", timeout=10)
    with gantry.Consumer(url, group="billing", start="earliest", topics=topic) as consumer:
        for message in consumer:
            consumer.done(message)
            return message.body
    raise AssertionError("nothing came")


def test_a_url_leads_to_servers_that_take_nothing_but_tls(
    tmp_path: Path, papers: tuple[Path, Path]
) -> None:
    own, trust = papers
    # Servers make their TLS themselves where no network is handed to them.
    tcp = replace(world("tcp on asyncio"), network=None)

    async def main() -> None:
        # The broker registers without TLS, so the name server takes both.
        names = {"listen__tls": tls(tmp_path, own, "permissive")}
        async with Site(
            tcp, tmp_path, of_names=names, listen__tls=tls(tmp_path, own, "enforcing")
        ) as site:
            secure = f"rmq://{site.names.address}/space?tls=1&tls_trust={trust}"
            assert await asyncio.to_thread(send_and_take, secure, "safe") == b"behind a lock"
            async with gantry.AsyncReader(secure) as reader:
                (found,) = [message async for message in reader.messages("safe")]
            assert found.topic == "safe"
            assert found.stored.topic == "space%safe"
            async with gantry.AsyncProducer(f"rmq://{site.names.address}") as plain:
                with pytest.raises(SendFailed):
                    await plain.send("open", b"x", timeout=1)

    tcp.run(main())


def test_a_variable_leads_there_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tcp = world("tcp on asyncio")

    async def main() -> None:
        async with Site(tcp, tmp_path) as site:
            await site.topic()
            monkeypatch.setenv("NAMESRV_ADDR", site.names.address)
            async with gantry.AsyncProducer() as producer:
                assert (await producer.send("orders", b"x")).queue.topic == "orders"
            monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
            monkeypatch.setenv("GANTRY_URL", f"rmq://{site.names.address}?send_timeout=9s")
            async with gantry.AsyncProducer() as producer:
                assert producer.producing.config.send_timeout == 9.0
                assert (await producer.send("orders", b"x")).queue.topic == "orders"

    tcp.run(main())
