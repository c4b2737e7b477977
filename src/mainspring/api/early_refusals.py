"""Answers that are given before a request is known to the app: complete, as bytes. The connection is closed after them.

SAFE_HEADERS belong to every answer of the API. It has no pages: nothing of it may be guessed to be HTML, framed by a
page, or kept in a cache. Other sites cannot read it, because requests with another Origin are refused, and no answer
allows one.

With a certificate of our own every answer, also that of a page, tells browsers to use TLS only (TLS_HEADER). A proxy
that ends TLS says so itself.
"""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from mainspring.wire.problems import PROBLEM_MEDIA_TYPE, Problem

SAFE_HEADERS = (
    ("x-content-type-options", "nosniff"),
    ("cache-control", "no-store"),
    ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
)

TLS_HEADER = ("strict-transport-security", "max-age=31536000")


def through_tls(answer: bytes) -> bytes:
    """A whole answer, with the header of answers through TLS."""
    return answer.replace(b"\r\n", f"\r\n{TLS_HEADER[0]}: {TLS_HEADER[1]}\r\n".encode(), 1)


def refusal(
    status: int, code: str, detail: str, *, hint: str, field: str | None = None, retry_after: int | None = None
) -> bytes:
    """The whole answer. With Content-Length, so that a client knows its end also if it reads the answer late."""
    body = msgspec.json.encode(
        Problem(
            type=f"urn:mainspring:problem:{code}",
            title=code.replace("_", " "),
            status=status,
            code=code,
            detail=detail,
            field=field,
            hint=hint,
        )
    )
    headers = [("content-type", PROBLEM_MEDIA_TYPE), ("content-length", str(len(body))), *SAFE_HEADERS]
    if retry_after is not None:
        headers.append(("retry-after", str(retry_after)))
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "connection: close", "", ""]).encode() + body


def twice(name: str) -> bytes:
    """Refuse a second header that may occur only once. Two programs that read different ones would see different
    requests."""
    return refusal(
        400, "duplicate_header", f"the header {name} occurs more than once", field=name, hint="send it once"
    )  # fmt: skip


MALFORMED = refusal(400, "malformed_request", "this is not a valid HTTP/1.1 request", hint="check the request line, "
                    "the headers and the length of the body")  # fmt: skip
UPGRADE = refusal(
    400, "upgrade_not_supported", "this server speaks only HTTP/1.1, and does not switch to another protocol",
    field="upgrade", hint="leave out the header Upgrade (curl: without --http2), and do not use CONNECT",
)  # fmt: skip
ENCODING = refusal(
    501, "unknown_transfer_encoding", "the body may be sent in chunks, and not be encoded otherwise",
    field="transfer-encoding", hint="send Content-Length, or with HTTP/1.1 Transfer-Encoding: chunked",
)  # fmt: skip
OTHER_TARGET = refusal(
    400, "other_target", "the request line names another server than the header Host",
    field="host", hint="send only the path in the request line, or the same server in both",
)  # fmt: skip
TOO_MANY_AHEAD = refusal(
    400, "too_many_requests_ahead", "too many requests were sent ahead on this connection",
    hint="wait for answers before sending more",
)  # fmt: skip
HEAD_TOO_LARGE = refusal(
    431, "head_too_large", "the head of the request is too large", hint="send at most 64 KiB of headers"
)
TOO_SLOW = refusal(
    408, "request_timeout", "the request did not arrive in time", hint="send it again, on a new connection"
)
FULL = refusal(
    503, "too_many_connections", "the server has too many connections", hint="try again after 1 s", retry_after=1
)
