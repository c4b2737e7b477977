"""The server's certificate: what is refused, and how a new one comes into use. Needs openssl."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path

import pytest

from mainspring.api.certificate import ServerCertificate, TlsFiles, handshake, load
from mainspring.domain.errors import InvalidInput
from mainspring.kernel.trust import tls_failure, trusted_context
from mainspring.roles.listening import checked_listening, local_url
from tests.certificates import Authority, Issued

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Issued:
    return authority.issue("server", "IP:127.0.0.1", "DNS:mainspring.test")


def copied(issued: Issued, folder: Path) -> TlsFiles:
    files = TlsFiles(folder / "cert.pem", folder / "key.pem")
    replace(files, issued)
    return files


def replace(files: TlsFiles, issued: Issued) -> None:
    """As a tool that renews certificates does it."""
    for source, target in ((issued.cert, files.cert), (issued.key, files.key)):
        shutil.copy(source, target.with_suffix(".new"))
        target.with_suffix(".new").replace(target)


def names_seen(certificate: ServerCertificate, authority: Authority, name: str) -> set[str]:
    seen = handshake(certificate.context, trusted_context(str(authority.ca)), name)
    return {value for _, value in seen["subjectAltName"]}


async def test_a_new_certificate_is_used_for_new_connections(
    authority: Authority, issued: Issued, tmp_path: Path
) -> None:
    files = copied(issued, tmp_path)
    certificate = ServerCertificate(files)
    assert not await certificate.run_once()
    assert names_seen(certificate, authority, "127.0.0.1") == {"127.0.0.1", "mainspring.test"}
    replace(files, authority.issue("renewed", "DNS:renewed.test"))
    assert await certificate.run_once() and not await certificate.run_once()
    assert names_seen(certificate, authority, "renewed.test") == {"renewed.test"}


async def test_a_broken_pair_leaves_the_old_one_in_use(authority: Authority, issued: Issued, tmp_path: Path) -> None:
    files = copied(issued, tmp_path)
    certificate = ServerCertificate(files)
    renewed = authority.issue("half", "DNS:half.test")
    expired = authority.issue("expired", "DNS:expired.test", days=-1)
    for broken in (
        Issued(renewed.cert, issued.key),
        Issued(renewed.key, renewed.cert),
        Issued(tmp_path / "empty", issued.key),
        expired,
    ):
        (tmp_path / "empty").write_bytes(b"")
        replace(files, broken)
        assert not await certificate.run_once()
        assert names_seen(certificate, authority, "127.0.0.1") == {"127.0.0.1", "mainspring.test"}
    files.key.unlink()
    assert not await certificate.run_once()
    replace(files, renewed)
    assert await certificate.run_once()
    assert names_seen(certificate, authority, "half.test") == {"half.test"}


def test_old_versions_and_weak_ciphers_are_refused(authority: Authority, issued: Issued) -> None:
    server = load(TlsFiles(*issued)).context
    assert server.minimum_version == ssl.TLSVersion.TLSv1_2
    assert all(cipher["aead"] and cipher["kea"] in ("kx-ecdhe", "kx-any") for cipher in server.get_ciphers())
    old = trusted_context(str(authority.ca))
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert handshake(server, old, "127.0.0.1")
    old.set_ciphers("AES128-SHA")  # no forward secrecy
    with pytest.raises(ssl.SSLError):
        handshake(server, old, "127.0.0.1")


def test_a_certificate_that_no_client_can_use_is_refused_at_the_start(authority: Authority, tmp_path: Path) -> None:
    first, second = authority.issue("one", "DNS:a.test"), authority.issue("two", "DNS:b.test")
    expired = authority.issue("old", "DNS:a.test", days=-1)
    for issued, words in (
        (Issued(first.cert, second.key), "does not belong to the certificate"),
        (Issued(first.key, first.key), "are not a certificate and its key"),
        (Issued(tmp_path / "missing.pem", first.key), "cannot read"),
        (expired, "has expired"),
    ):
        with pytest.raises(InvalidInput, match=words):
            checked_listening("0.0.0.0", *issued, insecure_http=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "10.1.2.3", "example.org"])
def test_plain_http_for_other_machines_is_refused_unless_it_is_allowed(host: str) -> None:
    with pytest.raises(InvalidInput, match="without TLS") as refused:
        checked_listening(host, None, None, insecure_http=False)
    assert (
        refused.value.hint is not None
        and "--tls-cert" in refused.value.hint
        and "--insecure-http" in refused.value.hint
    )
    assert checked_listening(host, None, None, insecure_http=True) is None
    assert checked_listening("127.0.0.1", None, None, insecure_http=False) is None


def test_half_a_pair_is_refused(issued: Issued) -> None:
    with pytest.raises(InvalidInput) as refused:
        checked_listening("127.0.0.1", issued.cert, None, insecure_http=False)
    assert refused.value.field == "tls_key"


def test_the_address_for_this_machine_has_a_name_of_the_certificate(authority: Authority, issued: Issued) -> None:
    ca = str(authority.ca)
    assert local_url("0.0.0.0", 8700, TlsFiles(*issued), ca) == "https://127.0.0.1:8700"
    named = authority.issue("named", "DNS:*.wild.test", "DNS:named.test")
    assert local_url("0.0.0.0", 8700, TlsFiles(*named), ca) == "https://named.test:8700"
    assert local_url("::", 8700, None, None) == "http://[::1]:8700"
    with pytest.raises(InvalidInput, match="not trusted here") as refused:
        local_url("0.0.0.0", 8700, TlsFiles(*issued), None)
    assert refused.value.hint is not None and "--ca" in refused.value.hint


@pytest.mark.parametrize(
    ("names", "days", "asked", "trusts", "words"),
    [
        (("DNS:a.test",), 2, "a.test", False, "an authority that is not trusted here"),
        (("DNS:a.test",), 2, "b.test", True, "for another name"),
        (("DNS:a.test",), 2, "127.0.0.1", True, "for another name"),
        (("DNS:a.test",), -1, "a.test", True, "has expired"),
    ],
)
def test_clients_are_told_what_is_wrong_with_a_certificate(
    authority: Authority, names: tuple[str, ...], days: int, asked: str, trusts: bool, words: str
) -> None:
    issued = authority.issue("checked", *names, days=days)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*issued)
    with pytest.raises(ssl.SSLError) as raised:
        handshake(server, trusted_context(str(authority.ca) if trusts else None), asked)
    failure = tls_failure(raised.value)
    assert failure is not None and words in failure.why and failure.hint
