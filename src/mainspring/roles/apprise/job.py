"""What the parent tells the child, and what the child answers."""

from __future__ import annotations

import msgspec

# Of the parent's environment, for a certificate authority of one's own.
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")


class AppriseJob(msgspec.Struct, frozen=True):
    """allowed: as --notify-allow has it. good: it tells no trouble."""

    url: str
    title: str
    body: str
    good: bool
    schemes: list[str]
    allowed: str | None
    certificates: dict[str, str] = {}


class AppriseAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """error: in words of our own, so that it has no secret. status: of the last answer of HTTP or SMTP. refused: the
    address that may not be called. final: another attempt would end alike."""

    sent: bool
    error: str | None = None
    status: int | None = None
    refused: str | None = None
    final: bool = False
