from __future__ import annotations

import pytest

from gantrymq.errors import ReplyError
from gantrymq.protocol.access_files import (
    Account,
    DeleteAccount,
    GetAccessFiles,
    GetAccessFilesInfo,
    PutAccount,
    SetWhiteAddresses,
)
from gantrymq.protocol.data_version import DataVersion
from gantrymq.wire.command import Command


def test_accounts() -> None:
    put = PutAccount(access_key="a", secret_key="secret", topics=("T=PUB|SUB", "U=DENY"))
    assert put.command().fields == {
        "accessKey": "a", "secretKey": "secret", "admin": "false", "topicPerms": "T=PUB|SUB,U=DENY",
    }  # fmt: skip
    assert "secret" not in repr(put)
    with pytest.raises(ReplyError) as caught:  # 209 is not a full table here
        put.reply_from(Command(209, remark="The accessKey is blank"))
    assert caught.value.code == 209
    assert DeleteAccount(access_key="a").command().fields == {"accessKey": "a"}


def test_files() -> None:
    assert SetWhiteAddresses(addresses=("10.0.0.*",)).command().fields == {
        "globalWhiteAddrs": "10.0.0.*"
    }
    info = GetAccessFilesInfo().reply_from(Command(0, fields={"version": '{"counter":1}'}))
    assert info.version == DataVersion(counter=1)
    body = (
        b'{"globalWhiteAddrs":["*"],"plainAccessConfigs":[{"accessKey":"a","admin":true,'
        b'"topicPerms":["T=PUB"]}]}'
    )
    files = GetAccessFiles().reply_from(Command(0, body=body))
    assert files.white_addresses == ["*"]
    assert files.accounts == [Account(access_key="a", admin=True, topics=["T=PUB"])]
