"""How clients of a server use TLS: whom they trust, where plain HTTP is refused, and what a failure means.

It imports ssl only when TLS is used: most commands and the processes above a worker do not need it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import ssl

CA_VARIABLE = "MAINSPRING_CA"
INSECURE_VARIABLE = "MAINSPRING_INSECURE_HTTP"
INSECURE_HINT = (
    "use https:// (docs/tls.md), or on a network that you trust give --insecure-http or set MAINSPRING_INSECURE_HTTP=1"
)

_NO = ("", "0", "false", "no", "off")
_UNKNOWN_ISSUER = (2, 18, 19, 20, 21)  # X509_V_ERR_*: no issuer, self-signed, self-signed in chain, no local issuer
_NOT_YET_VALID, _EXPIRED = 9, 10
_OTHER_NAME = (62, 64)  # host name, address
_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")


@dataclass(frozen=True, slots=True)
class TlsFailure:
    why: str
    hint: str


def is_loopback(host: str) -> bool:
    """Whether a connection to `host` cannot leave this machine. Other names than localhost are not looked up."""
    import ipaddress

    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host.lower().rstrip(".") == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def travels_in_clear(url: str) -> bool:
    """Whether others could read what is sent to this address."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")


def insecure_http_allowed(environ: Mapping[str, str]) -> bool:
    return environ.get(INSECURE_VARIABLE, "").strip().lower() not in _NO


def trusted_context(ca: str | None) -> ssl.SSLContext:
    """Verifies servers by the certificates of the system, or only by those of the file `ca`. Raises ValueError if the
    file cannot be used."""
    import ssl

    try:
        context = ssl.create_default_context(cafile=ca)
    except ssl.SSLError:
        raise ValueError(f"the CA file {ca} contains no certificate in PEM format") from None
    except OSError as error:
        raise ValueError(f"cannot read the CA file {ca}: {error.strerror}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def tls_failure(error: BaseException | None) -> TlsFailure | None:
    """What went wrong with TLS, and what to do. The causes of `error` are checked too. None if it was something
    else."""
    import ssl

    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    if isinstance(error, ssl.SSLCertVerificationError):
        return _refused_certificate(error)
    if error is not None and error.reason in _NOT_TLS:
        return TlsFailure("the server does not use TLS at this address", "write http:// instead of https://")
    return None


def _refused_certificate(error: ssl.SSLCertVerificationError) -> TlsFailure:
    code = error.verify_code
    if code in _UNKNOWN_ISSUER:
        return TlsFailure(
            "the server's certificate was issued by an authority that is not trusted here",
            f"name the file of that authority with --ca FILE or {CA_VARIABLE}",
        )
    if code in _OTHER_NAME:
        return TlsFailure(
            f"the server's certificate is for another name ({error.verify_message.rstrip('.')})",
            "use a name that is in the certificate, or get a certificate with this name",
        )
    if code == _EXPIRED:
        return TlsFailure(
            "the server's certificate has expired",
            "renew the files of --tls-cert and --tls-key; the server reloads them",
        )
    if code == _NOT_YET_VALID:
        return TlsFailure("the server's certificate is not valid yet", "compare the clocks of the two machines")
    return TlsFailure(f"the server's certificate is refused ({error.verify_message})", "get a certificate for servers")
