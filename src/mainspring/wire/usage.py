"""What the processes of an attempt have used: CPU time and memory."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

MOST_SAMPLES = 100

Seconds = Annotated[float, Meta(ge=0, le=1e12)]
Bytes = Annotated[int, Meta(ge=0, le=2**53)]
Sample = tuple[Seconds, Seconds, Bytes]


class Usage(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """What a worker says. cpu_s: CPU seconds of all processes of the attempt together. rss_peak: the largest resident
    memory that was seen. rss: what they use now, only while they run. samples: seconds since the attempt began, CPU
    seconds so far, and resident memory; only at the end."""

    cpu_s: Seconds
    rss_peak: Bytes
    rss: Bytes | None = None
    samples: Annotated[list[Sample], Meta(max_length=MOST_SAMPLES)] = []


class UsageView(msgspec.Struct):
    """What the processes of the last attempt have used. cpu_s: CPU seconds. rss_peak: the largest resident memory that
    was seen, in bytes. rss: what they use now, while they run. samples: of a run that lasted, each with the seconds
    since the attempt began, CPU seconds so far, and resident bytes; only where a single run is read, after its end."""

    cpu_s: float
    rss_peak: int
    rss: int | None = None
    samples: list[tuple[float, float, int]] = []


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(UsageView).decode


def usage_text(usage: Usage | None) -> str | None:
    """The usage as it is stored."""
    return None if usage is None else _encode(usage).decode()


def usage_view(text: str | None, *, samples: bool) -> UsageView | None:
    """The usage as it is shown. None if there is none, or if a newer version has stored what this one cannot read."""
    if text is None:
        return None
    try:
        view = _decode(text)
    except msgspec.MsgspecError:
        return None
    if not samples:
        view.samples = []
    return view
