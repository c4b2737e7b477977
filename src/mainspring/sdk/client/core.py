"""The one client core: how a request looks, how its answer is read, and when it is sent again. It does no I/O.

A face (sync or async) asks a `Conversation` what to do: it sends the call, hands in what came back, waits as long as
it is told, and in the end takes the result. So the two faces cannot come to differ in their manners.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import random
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import parse_qs, urlsplit

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
    PayloadTooLarge,
    Unauthorized,
    Unavailable,
    VersionMismatch,
    WrongMediaType,
)
from mainspring.kernel.addresses import ServerRotation
from mainspring.kernel.clock import Clock
from mainspring.wire.problems import Problem

T = TypeVar("T")

DEFAULT_PATIENCE = 15.0
_MOST_DIGITS = 4300  # more than that Python does not read
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_TRY_AGAIN = frozenset({429, 502, 503, 504})
_CERTAINLY_NOT_DONE = frozenset({429})
_IN_TROUBLE = frozenset({502, 503, 504})

_BY_CODE: dict[str, type[MainspringError]] = {
    error.code: error
    for error in (
        InvalidInput, NotSupportedYet, PayloadTooLarge, WrongMediaType, Unauthorized, Forbidden, NotFound, Conflict,
        Fenced, VersionMismatch, Unavailable,
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
class Answer:
    """What a server said. Header names are in lower case."""

    status: int
    content: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Nothing came back. `reached` is False only when the server cannot have seen the request."""

    why: str
    reached: bool


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request, and how its answer is read. `repeatable`: sending it twice does no more than sending it once."""

    method: str
    path: str
    read: Callable[[Answer], T]
    params: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    repeatable: bool = True
    also_read: frozenset[int] = frozenset()

    def reads(self, status: int) -> bool:
        """Whether an answer of this status is the result rather than a refusal."""
        return 200 <= status < 300 or status in self.also_read


class Page(Protocol):
    @property
    def next(self) -> str | None:
        """The cursor of the page after this one."""


PageT = TypeVar("PageT", bound=Page)


def following(call: Call[PageT], page: PageT) -> Call[PageT] | None:
    """The call for the page after `page`, or None when it was the last."""
    if page.next is None:
        return None
    kept = tuple(pair for pair in call.params if pair[0] != "cursor")
    return replace(call, params=(*kept, ("cursor", page.next)))


class Conversation(Generic[T]):
    """One call, from the first try to its result: it decides whether to try again, and when."""

    def __init__(
        self, call: Call[T], *, url: str, clock: Clock, patience: float, chance: Callable[[], float] = random
    ) -> None:
        self.call = call
        self._url = url
        self._clock = clock
        self._deadline = clock.monotonic() + patience
        self._chance = chance
        self._tries = 0
        self._last: Answer | NoAnswer | None = None

    def take(self, outcome: Answer | NoAnswer, *, elsewhere: bool = False) -> float | None:
        """Seconds to wait before the call is sent again; None when it is over and `result` may be asked for.
        `elsewhere`: it would go to another server, one that is not known to be in trouble."""
        self._last = outcome
        self._tries += 1
        if not self._worth_repeating(outcome):
            return None
        if elsewhere:
            return 0.0
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self._tries - 1, 10)) * (0.5 + self._chance())
        if isinstance(outcome, Answer):
            pause = max(retry_after(outcome) or 0.0, pause)
        return pause if self._clock.monotonic() + pause <= self._deadline else None

    def result(self) -> T:
        """What the call was made for; raises the error that the server's problem document describes."""
        match self._last:
            case Answer() as answer if self.call.reads(answer.status):
                return self._read(answer)
            case Answer() as answer:
                raise error_of(answer)
            case NoAnswer(why=why):
                raise Unavailable(
                    f"no answer from {self._url}: {why}",
                    code="unreachable",
                    hint="is it running? start it with: mainspring up",
                )
            case None:
                raise RuntimeError("the call has not been sent")

    def _worth_repeating(self, outcome: Answer | NoAnswer) -> bool:
        if isinstance(outcome, NoAnswer):
            return self.call.repeatable or not outcome.reached
        if self.call.reads(outcome.status):
            return False
        if outcome.status in _CERTAINLY_NOT_DONE:
            return True
        # A 503 may come after a commit whose confirmation was lost: only what is safe to repeat is repeated.
        return outcome.status in _TRY_AGAIN and self.call.repeatable

    def _read(self, answer: Answer) -> T:
        try:
            return self.call.read(answer)
        except msgspec.MsgspecError as error:
            raise MainspringError(
                f"{self._url} answered with something else than expected: {error}",
                code="unexpected_answer",
                hint="is this the address of a Mainspring server of the same version?",
            ) from None


def choose_next(rota: ServerRotation, address: str, outcome: Answer | NoAnswer) -> bool:
    """Go on with the next address if this one is away or in trouble; True when that one may be asked at once."""
    if isinstance(outcome, Answer) and outcome.status not in _IN_TROUBLE:
        rota.answered()
        return False
    rota.failed(address)
    return rota.untried


def json_of(shape: type[T]) -> Callable[[Answer], T]:
    """A reader of answers that are `shape` as JSON."""
    decode = msgspec.json.Decoder(shape).decode

    def read(answer: Answer) -> T:
        try:
            return decode(answer.content)
        except msgspec.ValidationError as error:
            if "out of range" not in str(error):
                raise
            # JSON knows no largest number, and a payload is kept as it was sent: 1e400 in one must not hide the others.
            return msgspec.convert(json.loads(answer.content, parse_int=_whole_number), shape)

    return read


def _whole_number(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def next_cursor(answer: Answer) -> str | None:
    """The cursor in the Link header's rel="next", for answers that are bare arrays."""
    for link in answer.headers.get("link", "").split(","):
        target, _, attributes = link.strip().partition(";")
        if 'rel="next"' in attributes:
            found = parse_qs(urlsplit(target.strip().strip("<>")).query).get("cursor")
            return found[0] if found else None
    return None


def retry_after(answer: Answer) -> float | None:
    """Seconds of the Retry-After header (its date form is not used by the server)."""
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isdigit() else None


def error_of(answer: Answer) -> MainspringError:
    """The exception that a refusal stands for: by its code, else by its status."""
    try:
        problem = msgspec.json.decode(answer.content, type=Problem)
    except msgspec.MsgspecError:
        return _foreign_error(answer)
    if problem.code == InvalidBatch.code and problem.errors:
        return InvalidBatch(problem.errors)
    kind = _BY_CODE.get(problem.code) or _BY_STATUS.get(problem.status, MainspringError)
    error = kind(problem.detail, code=problem.code, field=problem.field, expected=problem.expected, hint=problem.hint)
    return _with_retry_after(error, answer)


def _foreign_error(answer: Answer) -> MainspringError:
    """Not our problem document: a proxy's page, or another program at that address."""
    first_line = answer.content.decode(errors="replace").strip().partition("\n")[0][:200]
    kind = _BY_STATUS.get(answer.status, MainspringError)
    code = kind.code if kind is not MainspringError else "unexpected_answer"
    error = kind(f"the server answered {answer.status}" + (f": {first_line}" if first_line else ""), code=code)
    return _with_retry_after(error, answer)


def _with_retry_after(error: MainspringError, answer: Answer) -> MainspringError:
    seconds = retry_after(answer)
    if isinstance(error, Unavailable) and seconds is not None:
        error.retry_after = int(seconds)
    return error


def encode(value: Any) -> bytes:
    """`value` as JSON; dataclasses, datetimes, UUIDs and sets are understood."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, msgspec.MsgspecError) as error:
        raise InvalidInput(
            f"this cannot be written as JSON: {error}",
            code="not_json",
            hint="use numbers, texts, lists, dicts, dataclasses, datetimes, UUIDs",
        ) from None
