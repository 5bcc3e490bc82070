from pathlib import Path

import pytest
import trustme

from gantrymq.errors import ConfigError
from gantrymq.net.tls_properties import parse_properties, read_tls, tls_settings


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pem") / "both.pem"
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(path))
    with path.open("ab") as file:
        file.write(authority.cert_pem.bytes())
    return path


def test_the_properties_format() -> None:
    text = (
        "# comment\n! another\n\n"
        "a=1\nb : 2\nc 3\nd\n"
        "  e = with spaces = and signs  \n"
        "path = C:\\\\keys\\\\a.pem\n"
        "long = first \\\n    second\n"
        "odd\\ key\\:x = \\u00e9\\t|\r\n"
    )
    assert parse_properties(text) == {
        "a": "1",
        "b": "2",
        "c": "3",
        "d": "",
        "e": "with spaces = and signs",
        "path": "C:\\keys\\a.pem",
        "long": "first second",
        "odd key:x": "é\t|",
    }


def test_a_whole_file(pem: Path, tmp_path: Path) -> None:
    path = tmp_path / "tls.properties"
    path.write_text(
        "tls.test.mode.enable=false\n"
        "tls.enable=true\n"
        "tls.server.mode=enforcing\n"
        "tls.server.need.client.auth=require\n"
        f"tls.server.keyPath={pem}\ntls.server.certPath={pem}\n"
        f"tls.server.authClient=true\ntls.server.trustCertPath={pem}\n"
        f"tls.client.authServer=true\ntls.client.trustCertPath={pem}\n"
        "tls.protocols=TLSv1.2,TLSv1.3\n"
    )
    found = read_tls(path)
    assert found.server is not None
    assert (found.server.mode, found.server.client_auth) == ("enforcing", "require")
    assert found.server.files.trust == pem
    assert found.client is not None
    assert (found.client.verify, found.client.check_hostname) == (True, False)
    assert found.client.files.protocols == ("TLSv1.2", "TLSv1.3")


def test_an_empty_file_means_no_tls() -> None:
    found = tls_settings({})
    assert found.server is None
    assert found.client is None


def test_a_certificate_alone_makes_a_server_take_both(pem: Path) -> None:
    paths = {"tls.server.certPath": str(pem), "tls.server.keyPath": str(pem)}
    server = tls_settings(paths).server
    assert server is not None
    assert server.mode == "permissive"
    assert tls_settings(paths | {"tls.server.mode": "disabled"}).server is None


def test_a_client_trusts_anything_in_test_mode_or_when_it_is_not_told_to_check(pem: Path) -> None:
    checking = {
        "tls.enable": "TRUE",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(pem),
    }
    for more, verify in (
        ({}, True),
        ({"tls.client.authServer": "false"}, False),
        ({"tls.test.mode.enable": "true"}, False),
    ):
        client = tls_settings(checking | more).client
        assert client is not None
        assert client.verify is verify


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"tls.server.certpath": "x"}, "is it 'tls.server.certPath'"),
        ({"tls.sever": "x"}, "no TLS setting 'tls.sever'"),
        ({"tls.server.mode": "strict"}, "it has to be one of disabled, permissive, enforcing"),
        ({"tls.enable": "yes"}, "tls.enable is 'yes'"),
        ({"tls.server.mode": "permissive"}, "needs a certificate"),
        (
            {"tls.server.certPath": "x", "tls.server.need.client.auth": "require"},
            "needs tls.server.authClient=true",
        ),
    ],
)
def test_mistakes_are_named(properties: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        tls_settings(properties)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_tls(tmp_path / "nowhere.properties")
