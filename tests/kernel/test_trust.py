"""Which addresses are on this machine, and what is refused beyond it."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from mainspring.kernel.trust import insecure_http_allowed, is_loopback, tls_failure, travels_in_clear, trusted_context


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "LOCALHOST.", "::ffff:127.0.0.1"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "10.0.0.5", "example.org", "localhost.example.org", "127.0.0.1.nip.io", "127.1"]
)
def test_everything_else_can_leave_the_machine(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("url", "clear"),
    [
        ("http://127.0.0.1:8700", False),
        ("http://[::1]:8700", False),
        ("https://example.org", False),
        ("http://example.org", True),
        ("http://127.0.0.1@example.org", True),
        ("http://localhost.example.org:8700", True),
    ],
)
def test_plain_http_beyond_loopback_travels_in_clear(url: str, clear: bool) -> None:
    assert travels_in_clear(url) is clear


def test_the_environment_allows_plain_http_only_if_it_says_so() -> None:
    assert insecure_http_allowed({"MAINSPRING_INSECURE_HTTP": "1"})
    for no in ({}, {"MAINSPRING_INSECURE_HTTP": ""}, {"MAINSPRING_INSECURE_HTTP": "0"}):
        assert not insecure_http_allowed(no)


def test_a_ca_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no certificate")
    with pytest.raises(ValueError, match=r"no\.pem contains no certificate"):
        trusted_context(str(tmp_path / "no.pem"))
    with pytest.raises(ValueError, match=r"missing\.pem: No such file"):
        trusted_context(str(tmp_path / "missing.pem"))


def test_a_failure_of_tls_is_found_behind_other_errors() -> None:
    try:
        try:
            raise ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")
        except ssl.SSLError as error:
            error.reason = "WRONG_VERSION_NUMBER"
            raise RuntimeError from error
    except RuntimeError as error:
        failure = tls_failure(error)
    assert failure is not None and "does not use TLS" in failure.why
    assert tls_failure(OSError("refused")) is None and tls_failure(None) is None
