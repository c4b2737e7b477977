"""The exchange of a worker that has much to say: its parts are measured before they are decoded, and then decoded one
after the other, the long lists in slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from mainspring.api.array_scanner import ArrayScanner, ElementTooLarge
from mainspring.api.large_batch import AT_ONCE, UNREADABLE
from mainspring.domain.errors import InvalidInput, PayloadTooLarge
from mainspring.domain.intake.decoding_errors import in_words
from mainspring.kernel.config import MAX_HELLO_BYTES
from mainspring.kernel.time_slices import TimeSlices
from mainspring.wire.exchange import ExchangeRequest, Held, Outcome, Progress, WorkerHello

T = TypeVar("T")

MOST_OUTCOMES = 10_000
MOST_HELD = 100_000
MOST_PROGRESS = 10_000
_MOST_BYTES = {"hello": MAX_HELLO_BYTES, "shares": AT_ONCE, "room": AT_ONCE, "started": AT_ONCE}
_NOTHING = msgspec.Raw()


# An exchange whose parts are left as they came.
_Parts = msgspec.defstruct(
    "_Parts",
    [(field, msgspec.Raw, _NOTHING) for field in ExchangeRequest.__struct_fields__],
    forbid_unknown_fields=True,
)


_LISTS: dict[str, tuple[Callable[[bytes], Any], type[msgspec.Struct], int]] = {
    "outcomes": (msgspec.json.Decoder(Outcome).decode, Outcome, MOST_OUTCOMES),
    "inventory": (msgspec.json.Decoder(Held).decode, Held, MOST_HELD),
    "progress": (msgspec.json.Decoder(Progress).decode, Progress, MOST_PROGRESS),
}
_decode_parts = msgspec.json.Decoder(_Parts).decode
_decode_hello = msgspec.json.Decoder(WorkerHello | None).decode
_decode_rest = msgspec.json.Decoder(ExchangeRequest).decode


async def read_exchange(body: bytes) -> ExchangeRequest:
    """Return the exchange as if it had been decoded as a whole."""
    slices = TimeSlices()
    try:
        parts = _decode_parts(body)
    except UNREADABLE as error:
        raise in_words(error, ExchangeRequest) from None
    await slices.pause()
    for field, most in _MOST_BYTES.items():
        if (size := len(memoryview(getattr(parts, field)))) > most:
            raise PayloadTooLarge(f"{field} has {size} bytes", field=field, expected=f"at most {most} bytes")
    request = await _without_lists(parts, slices)
    for field in _LISTS:
        raw = bytes(getattr(parts, field))
        if raw:
            setattr(request, field, await _list(field, raw, slices))
    return request


async def _without_lists(parts: Any, slices: TimeSlices) -> ExchangeRequest:
    """All that is small, decoded together: the decoder's own words about it stay as they are. Then the hello."""
    small = [
        b'"%b":%b' % (field.encode(), bytes(raw))
        for field in _Parts.__struct_fields__
        if field not in _LISTS and field != "hello" and memoryview(raw := getattr(parts, field))
    ]
    try:
        request = _decode_rest(b"{%b}" % b",".join(small))
        await slices.pause()
        if memoryview(parts.hello):
            request.hello = _decode_hello(parts.hello)
            await slices.pause()
    except UNREADABLE as error:
        raise in_words(error, ExchangeRequest) from None
    return request


async def _list(field: str, raw: bytes, slices: TimeSlices) -> list[Any]:
    decode, struct, most = _LISTS[field]
    found: list[Any] = []
    try:
        async for element in ArrayScanner(raw, 0, AT_ONCE, slices).elements():
            if len(found) >= most:
                raise too_many(field, most)
            found.append(decode(element))
    except ElementTooLarge as error:
        place = f"{field}[{error.index}]"
        raise PayloadTooLarge(f"{place} is too large", field=place, expected=f"at most {AT_ONCE} bytes") from None
    except UNREADABLE as error:
        refusal = in_words(error, struct)
        inner = f".{refusal.field}" if refusal.field not in (None, "$") else ""
        refusal.field = f"{field}[{len(found)}]{inner}"
        raise refusal from None
    return found


def check_counts(request: ExchangeRequest) -> None:
    """Check the bounds of an exchange that was decoded as a whole."""
    for field, (_, _, most) in _LISTS.items():
        if len(getattr(request, field)) > most:
            raise too_many(field, most)


def too_many(field: str, most: int) -> InvalidInput:
    return InvalidInput(f"{field} has more than {most} entries", field=field, expected=f"at most {most}")
