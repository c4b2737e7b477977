"""The client core: builds requests, reads responses and decides about retries. It does no I/O.

The sync and the async client send a call, pass the outcome to a `RetryingCall`, wait as long as it says, and read the
result from it. The logic is shared, so both clients behave the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import random
from typing import Generic, Protocol, TypeVar
from urllib.parse import parse_qs, quote, urlsplit

import msgspec

from mainspring.domain.errors import (
    Conflict,
    Fenced,
    Forbidden,
    InvalidBatch,
    InvalidInput,
    MainspringError,
    NotFound,
    NotSupportedYet,
    OverQuota,
    PayloadTooLarge,
    QueueFull,
    QuotaExceeded,
    Unauthorized,
    Unavailable,
    VersionMismatch,
    WrongMediaType,
)
from mainspring.kernel.addresses import ServerRotation
from mainspring.kernel.clock import Clock
from mainspring.sdk.client.encoding import encode as encode
from mainspring.sdk.client.patience import Patience as Patience
from mainspring.sdk.client.patience import checked_patience as checked_patience
from mainspring.wire.problems import Problem

T = TypeVar("T")

ELSEWHERE = "a server elsewhere is named by url= or MAINSPRING_URL"
_NOT_THERE = f"is it running? start it with: mainspring up; {ELSEWHERE}"
_MOST_DIGITS = 4300  # Python parses no longer integers
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_TRY_AGAIN = frozenset({429, 502, 503, 504})
_CERTAINLY_NOT_DONE = frozenset({429})
_IN_TROUBLE = frozenset({502, 503, 504})

_BY_CODE: dict[str, type[MainspringError]] = {
    error.code: error
    for error in (
        InvalidInput, NotSupportedYet, PayloadTooLarge, WrongMediaType, Unauthorized, Forbidden, NotFound, Conflict,
        Fenced, VersionMismatch, Unavailable, QueueFull, OverQuota, QuotaExceeded,
    )
}  # fmt: skip
_BY_STATUS: dict[int, type[MainspringError]] = {
    400: InvalidInput,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: VersionMismatch,
    413: PayloadTooLarge,
    415: WrongMediaType,
    422: InvalidInput,
    429: Unavailable,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """The response of a server. Header names are in lower case."""

    status: int
    content: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """There was no response. `reached` is False only if the server cannot have received the request. `refused`: there
    was no connection at all. `hint`: what to do about it; the same request would not succeed later. `guess`: what to
    try if it does not succeed later either."""

    why: str
    reached: bool
    refused: bool = False
    hint: str | None = None
    guess: str | None = None


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request and the reader of its response. `repeatable`: sending it twice has the same effect as once."""

    method: str
    path: str
    read: Callable[[ServerAnswer], T]
    params: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    repeatable: bool = True
    also_read: frozenset[int] = frozenset()

    def reads(self, status: int) -> bool:
        """Whether a response with this status is a result rather than an error."""
        return 200 <= status < 300 or status in self.also_read


def segment(name: str) -> str:
    """A name as one segment of a path. Proxies would remove . and .. as they are."""
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")


class Page(Protocol):
    @property
    def next(self) -> str | None:
        """The cursor of the next page."""


PageT = TypeVar("PageT", bound=Page)


def following(call: Call[PageT], page: PageT) -> Call[PageT] | None:
    """The call for the page after `page`, or None if it was the last one."""
    if page.next is None:
        return None
    kept = tuple(pair for pair in call.params if pair[0] != "cursor")
    return replace(call, params=(*kept, ("cursor", page.next)))


class RetryingCall(Generic[T]):
    """One call with its retries: decides whether and when the call is sent again."""

    def __init__(
        self, call: Call[T], *, url: str, clock: Clock, patience: Patience, chance: Callable[[], float] = random
    ) -> None:
        self.call = call
        self._url = url
        self._clock = clock
        self._patience = patience
        self._deadline = clock.monotonic() + patience.seconds
        self._refused_since: float | None = None
        self._chance = chance
        self._tries = 0
        self._last: ServerAnswer | NoAnswer | None = None

    def next_delay(self, outcome: ServerAnswer | NoAnswer, *, elsewhere: bool = False) -> float | None:
        """Seconds to wait before the call is sent again. None if the call is complete and `result` can be called.
        `elsewhere`: the next attempt goes to another server, which has not failed."""
        self._last = outcome
        self._tries += 1
        now = self._clock.monotonic()
        refused = isinstance(outcome, NoAnswer) and outcome.refused
        if not refused:
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = now
        if not self._worth_repeating(outcome):
            return None
        if elsewhere:
            return 0.0
        if isinstance(outcome, NoAnswer) and outcome.hint is not None:
            return None
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self._tries - 1, 10)) * (0.5 + self._chance())
        if isinstance(outcome, ServerAnswer):
            pause = max(retry_after(outcome) or 0.0, pause)
        deadline = self._deadline
        if self._refused_since is not None:
            deadline = min(deadline, self._refused_since + self._patience.refused)
        return pause if now + pause <= deadline else None

    def result(self) -> T:
        """The result of the call. Raises the error that the server's problem document describes."""
        match self._last:
            case ServerAnswer() as answer if self.call.reads(answer.status):
                return self._read(answer)
            case ServerAnswer() as answer:
                raise error_of(answer)
            case NoAnswer(why=why, hint=hint, guess=guess):
                raise Unavailable(
                    f"no answer from {self._url}: {why}",
                    code="unreachable",
                    hint=hint or guess or _NOT_THERE,
                )
            case None:
                raise RuntimeError("the call has not been sent")

    def _worth_repeating(self, outcome: ServerAnswer | NoAnswer) -> bool:
        if isinstance(outcome, NoAnswer):
            return self.call.repeatable or not outcome.reached
        if self.call.reads(outcome.status):
            return False
        if outcome.status in _CERTAINLY_NOT_DONE:
            return True
        # A 503 can follow a commit whose confirmation was lost, so only repeatable calls are repeated.
        return outcome.status in _TRY_AGAIN and self.call.repeatable

    def _read(self, answer: ServerAnswer) -> T:
        try:
            return self.call.read(answer)
        except msgspec.MsgspecError as error:
            raise MainspringError(
                f"the response of {self._url} cannot be read: {error}",
                code="unexpected_answer",
                hint="is this the address of a Mainspring server of the same version?",
            ) from None


def choose_next(rotation: ServerRotation, address: str, outcome: ServerAnswer | NoAnswer) -> bool:
    """Move on to the next address if this one failed. True if the next one can be tried at once."""
    if isinstance(outcome, ServerAnswer) and outcome.status not in _IN_TROUBLE:
        rotation.answered()
        return False
    rotation.failed(address)
    return rotation.untried


def json_of(shape: type[T]) -> Callable[[ServerAnswer], T]:
    """A reader for responses that are `shape` as JSON."""
    decode = msgspec.json.Decoder(shape).decode

    def read(answer: ServerAnswer) -> T:
        try:
            return decode(answer.content)
        except msgspec.ValidationError as error:
            if "out of range" not in str(error):
                raise
            # JSON has no largest number, and payloads are stored as sent. A payload with 1e400 must not fail the whole
            # list.
            return msgspec.convert(json.loads(answer.content, parse_int=_whole_number), shape)

    return read


def _whole_number(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def next_cursor(answer: ServerAnswer) -> str | None:
    """The cursor in the Link header's rel="next", for responses that are plain arrays."""
    for link in answer.headers.get("link", "").split(","):
        target, _, attributes = link.strip().partition(";")
        if 'rel="next"' in attributes:
            found = parse_qs(urlsplit(target.strip().strip("<>")).query).get("cursor")
            return found[0] if found else None
    return None


def retry_after(answer: ServerAnswer) -> float | None:
    """The seconds of the Retry-After header. The server does not use its date form."""
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isdigit() else None


def error_of(answer: ServerAnswer) -> MainspringError:
    """The exception for an error response, by its code or else by its status."""
    try:
        problem = msgspec.json.decode(answer.content, type=Problem)
    except msgspec.MsgspecError:
        return _foreign_error(answer)
    if problem.code == InvalidBatch.code and problem.errors:
        return InvalidBatch(problem.errors)
    kind = _BY_CODE.get(problem.code) or _BY_STATUS.get(problem.status, MainspringError)
    error = kind(problem.detail, code=problem.code, field=problem.field, expected=problem.expected, hint=problem.hint)
    if isinstance(error, OverQuota | QuotaExceeded):
        error.limit, error.used = problem.limit, problem.used
    return _with_retry_after(error, answer)


def _foreign_error(answer: ServerAnswer) -> MainspringError:
    """The exception for a response that is not a problem document, e.g. from a proxy or another program."""
    first_line = answer.content.decode(errors="replace").strip().partition("\n")[0][:200]
    kind = _BY_STATUS.get(answer.status, MainspringError)
    code = kind.code if kind is not MainspringError else "unexpected_answer"
    error = kind(f"the server answered {answer.status}" + (f": {first_line}" if first_line else ""), code=code)
    return _with_retry_after(error, answer)


def _with_retry_after(error: MainspringError, answer: ServerAnswer) -> MainspringError:
    seconds = retry_after(answer)
    if isinstance(error, Unavailable) and seconds is not None:
        error.retry_after = int(seconds)
    return error
