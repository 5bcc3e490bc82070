"""Our clients at RocketMQ's brokers that ask who sends: access lists of 4.x, users of 5.x."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import jars
import pytest
from apache import Cluster
from conftest import or_skip

import gantrymq as gantry
from gantrymq.errors import SendFailed

WHO: Final = "gantry-shop"
SECRET: Final = "c0ffee-and-tea"
_ACCOUNTS: Final = f"""\
accounts:
- accessKey: {WHO}
  secretKey: {SECRET}
  admin: true
"""
_AUTH: Final = "org.apache.rocketmq.auth.authentication.provider"
_USERS: Final = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{_AUTH}.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_AUTH}.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": f'{{"username":"{WHO}","password":"{SECRET}"}}',
    "innerClientAuthenticationCredentials": (f'{{"accessKey":"{WHO}","secretKey":"{SECRET}"}}'),
}


def started(version: str) -> Cluster:
    """A broker that takes nothing from strangers."""
    if version.startswith("4."):
        settings: dict[str, object] = {"aclEnable": "true"}
        return Cluster(version, settings=settings, files={"plain_acl.yml": _ACCOUNTS})
    return Cluster(version, settings=dict(_USERS))


@pytest.fixture(scope="module", params=jars.VERSIONS)
def closed_shop(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    cluster = or_skip(lambda: started(request.param))
    with cluster:
        yield cluster


def refused(url: str, **how: Any) -> str:
    """What is said to whoever sends there."""
    with (
        gantry.Producer(url, group="strangers", send_timeout=20, **how) as producer,
        pytest.raises(SendFailed) as failed,
    ):
        producer.send("guarded", b"let me in")
    return str(failed.value)


def test_a_url_with_a_secret_opens_what_is_closed_to_others(closed_shop: Cluster) -> None:
    at = closed_shop.name_server
    url = f"rmq://{WHO}:{SECRET}@{at}"
    with gantry.Producer(url, group="known", send_timeout=20) as producer:
        producer.send("guarded", b"it is me")
        producer.send("guarded", b"once more", order_key="x")
        assert len(producer.send_batch([gantry.Message("guarded", b"%d" % n) for n in (1, 2)])) == 2
    taken = []
    with gantry.Consumer(url, group="readers", start="earliest", topics="guarded") as consumer:
        for message in consumer:
            taken.append(message.body)
            consumer.done(message)
            if len(taken) == 4:
                break
    assert sorted(taken) == [b"1", b"2", b"it is me", b"once more"]
    with gantry.Admin(url, timeout=20) as admin:
        admin.create_topic("guarded-too", queues=2)
    for stranger in (
        f"rmq://{at}",
        f"rmq://{WHO}:wrong-secret@{at}",
        f"rmq://nobody:{SECRET}@{at}",
    ):
        assert "guarded" in refused(stranger)
