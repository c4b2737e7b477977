"""Bodies: JSON to wire structs, and every way in which that can fail put in words with the field's path."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec

from mainspring.api.large_batch import AT_ONCE, UNREADABLE, JobBatch, RawBatch, Undecoded, is_large, too_many_jobs
from mainspring.api.large_exchange import check_counts, too_many
from mainspring.api.web import Receive
from mainspring.domain.errors import InvalidInput, PayloadTooLarge
from mainspring.domain.intake.decoding_errors import in_words
from mainspring.kernel.config import MAX_BATCH
from mainspring.kernel.patience import ClientGone
from mainspring.wire.applications import MOST_SCHEDULES, DeclarationRequest
from mainspring.wire.exchange import ExchangeRequest
from mainspring.wire.jobs import JobRequest
from mainspring.wire.logs import LogShipment

T = TypeVar("T")
Decode = Callable[[bytes], Any]

_MAY_HAVE_MANY = 256 * 1024  # bytes; a shorter body cannot be over a bound
_MOST_PARTS = 256 * 1024  # arrays and objects: 40 ms at worst. No payload has more.
_MOST_CHUNKS = 4000
_OTHER_FIELDS = 100  # commas of a declaration that are not between ids; no valid value has one

_decode_jobs = msgspec.json.Decoder(list[JobRequest]).decode
_decode_exchange = msgspec.json.Decoder(ExchangeRequest).decode
_decode_shipment = msgspec.json.Decoder(LogShipment).decode
_decode_declaration = msgspec.json.Decoder(DeclarationRequest).decode
_decode_batch = msgspec.json.Decoder(JobBatch).decode
_decode_raw_batch = msgspec.json.Decoder(RawBatch).decode


def decode_exchange(body: bytes) -> ExchangeRequest | Undecoded:
    """The exchange, or the body as it came when it is large."""
    if len(body) > AT_ONCE:
        return Undecoded(body)
    request = decoded(_decode_exchange, body, ExchangeRequest)
    if len(body) > _MAY_HAVE_MANY:
        check_counts(request)
    return request


def decode_shipment(body: bytes) -> LogShipment:
    shipment = decoded(_decode_shipment, body, LogShipment)
    if len(shipment.chunks) > _MOST_CHUNKS:
        raise too_many("chunks", _MOST_CHUNKS)
    return shipment


def decode_declaration(body: bytes) -> DeclarationRequest:
    """The number of ids is looked at first: each takes longer to check than other texts."""
    if body.count(b",") > MOST_SCHEDULES + _OTHER_FIELDS:
        raise too_many("job_ids", MOST_SCHEDULES)
    return decoded(_decode_declaration, body, DeclarationRequest)


def decode_batch(body: bytes) -> JobBatch | Undecoded:
    """The jobs, or the body as it came when it is large or when something is wrong with it."""
    if is_large(body):
        return Undecoded(body)
    bare = body.lstrip().startswith(b"[")
    try:
        requests = _decode_jobs(body) if bare else _decode_batch(body).jobs
    except UNREADABLE:
        if not bare:
            decoded(_decode_raw_batch, body, JobBatch)  # raises if not only the jobs are wrong
        return Undecoded(body)
    if len(requests) > MAX_BATCH:
        raise too_many_jobs(len(requests))
    return JobBatch(requests)


def decoded(decode: Callable[[bytes], T], body: bytes, struct: type[msgspec.Struct]) -> T:
    if len(body) > _MAY_HAVE_MANY and body.count(b"[") + body.count(b"{") > _MOST_PARTS:
        raise PayloadTooLarge(
            "the body has too many arrays and objects", field="$", expected=f"at most {_MOST_PARTS}",
            hint="store it elsewhere and send a reference",
        )  # fmt: skip
    try:
        return decode(body)
    except UNREADABLE as error:
        raise in_words(error, struct) from None


@cache
def body_of(struct: type[msgspec.Struct]) -> Decode:
    """How the body of a handler is read that takes `data: struct`."""
    decode = msgspec.json.Decoder(struct).decode
    return lambda body: decoded(decode, body, struct)


async def read_body(receive: Receive, most: int, announced: int | None) -> bytes:
    """The whole body. Raises PayloadTooLarge before it is read if it is announced, and ClientGone."""
    if announced is not None and announced > most:
        raise _too_large(most)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise _too_large(most)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def no_body() -> InvalidInput:
    return InvalidInput("the body is empty", code="invalid_json", field="$", expected="a JSON object")


def _too_large(most: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        "the body is too large", field="$", expected=f"at most {most} bytes", hint="send it in parts"
    )
