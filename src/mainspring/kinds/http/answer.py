"""Evaluates the answer to an http task: success or failure, the stored result, and when to retry."""

from __future__ import annotations

import asyncio
import codecs
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache, cached_property
from typing import Any

import msgspec

from mainspring.domain.sizes import format_size
from mainspring.kernel.config import MAX_RESULT_BYTES
from mainspring.kinds.http.call import SuccessRule
from mainspring.kinds.http.parser import Received
from mainspring.wire.execution import Cause
from mainspring.worker.execution.attempt import AttemptEnding, failed

# The request itself is wrong: the same request would get the same answer.
NOT_WORTH_RETRYING = frozenset({400, 401, 403, 404, 405, 410, 422})
_KEPT_HEADERS = ("content-type", "location", "etag", "last-modified", "retry-after", "request-id", "x-request-id")
_LONGEST_KEPT_HEADER = 1000
_IN_ERROR = 500
_LONGEST_RETRY_AFTER = 86400.0
_READ_ON_THE_LOOP = 64 * 1024
_FEW_PARTS = 500
# To decode more takes over 0.2 s, in which the worker does nothing else, and hundreds of MB of memory.
_MOST_PARTS = 256 * 1024
_MOST_COMMAS = 1024 * 1024
# Of a body that is not JSON only as much is decoded as can be stored, at 4 bytes per character. To decode an invalid
# 64 MiB takes seconds, in which the worker does nothing else.
_READ_AS_TEXT = 4 * MAX_RESULT_BYTES
# Python treats these as encodings too. 200 KB of Punycode took 18 s, and the others produce invalid characters.
_NO_CHARSETS = frozenset({"punycode", "idna", "utf-7", "unicode-escape", "raw-unicode-escape"})
_CHARSET = re.compile(r"charset=\"?([\w.:-]+)", re.ASCII | re.IGNORECASE)
_SECONDS = re.compile(r"\d{1,15}\Z", re.ASCII)
_CUT = "\n[cut]"


@dataclass
class HttpAnswer:
    """The answer of `where` to a request."""

    method: str
    where: str
    received: Received

    @property
    def status(self) -> int:
        return self.received.status

    @property
    def headers(self) -> dict[str, str]:
        return self.received.headers

    @property
    def body(self) -> bytes:
        return self.received.body

    @property
    def cut(self) -> bool:
        return self.received.cut

    @property
    def is_json(self) -> bool:
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        return kind == "application/json" or kind.endswith("+json")

    @cached_property
    def text(self) -> str:
        """The beginning of the body, as text that JSON and PostgreSQL accept."""
        head = self.body[:_READ_AS_TEXT]
        try:
            text = head.decode(_charset(self.headers.get("content-type", "")), "replace")
        except (LookupError, ValueError):  # an unknown charset
            text = head.decode("utf-8", "replace")
        return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


async def ending_of(answer: HttpAnswer, rule: SuccessRule | None, now: datetime) -> AttemptEnding:
    """SUCCESS with the answer as the result, or FAILED with the reason."""
    fault = await _fault(answer, rule)
    if fault is None:
        return AttemptEnding(result=_result(answer))
    return failed(
        fault,
        retry=answer.status not in NOT_WORTH_RETRYING,
        cause=Cause(http_status=answer.status),
        retry_after=retry_after(answer.headers, now),
    )


def accepts(statuses: list[int | str], status: int) -> bool:
    """Whether `status` is one of the numbers, or belongs to a class such as "2xx"."""
    return status in statuses or f"{status // 100}xx" in statuses


async def _fault(answer: HttpAnswer, rule: SuccessRule | None) -> str | None:
    said = f"HTTP {answer.status} from {answer.method} {answer.where}"
    statuses: list[int | str] = rule.status if rule is not None and rule.status else ["2xx"]
    if not accepts(statuses, answer.status):
        words = " ".join(answer.text[: 4 * _IN_ERROR].split())[:_IN_ERROR]
        return f"{said}: {words}" if words else said
    if rule is None or rule.json is None:
        return None
    if answer.cut:
        return f"{said}, but {rule.json} was not looked up: the body has more than {format_size(len(answer.body))}"
    problem = await _path_fault(rule, answer.body)
    return None if problem is None else f"{said}, but {problem}"


async def _path_fault(rule: SuccessRule, body: bytes) -> str | None:
    """Why the body does not fulfil the rule. A large one is read in a thread, which ends with the run."""
    parts, commas = body.count(b"[") + body.count(b"{"), body.count(b",")
    if parts > _MOST_PARTS or commas > _MOST_COMMAS:
        what = f"{_MOST_PARTS} arrays and objects" if parts > _MOST_PARTS else f"{_MOST_COMMAS} commas"
        return f"{rule.json} was not looked up: success.json reads a body with at most {what}"

    from mainspring.kinds.http.json_path import Budget, path_fault  # it takes 30 ms, so only if needed

    budget = Budget()

    def read() -> str | None:
        value = _decoded(body)
        if value is msgspec.UNSET:
            return f"the body is not JSON, so {rule.json} finds nothing"
        return path_fault(rule, value, budget)

    if parts + commas <= _FEW_PARTS and len(body) <= _READ_ON_THE_LOOP:
        return read()
    try:
        return await asyncio.get_running_loop().run_in_executor(_readers(), read)
    finally:
        budget.stop()


@cache
def _readers() -> ThreadPoolExecutor:
    """Few threads of their own: each has one decoded body, and others' work does not wait for them."""
    return ThreadPoolExecutor(2, thread_name_prefix="json-path")


def retry_after(headers: dict[str, str], now: datetime) -> float | None:
    """The seconds that Retry-After asks for, as a number or as a date; at most a day."""
    text = headers.get("retry-after", "").strip()
    if _SECONDS.match(text):
        return min(float(text), _LONGEST_RETRY_AFTER)
    until = _http_date(text)
    if until is None:
        return None
    # By the clock of the server, if it sends a date: the clock of the worker may differ.
    since = _http_date(headers.get("date", "")) or now
    return min(max(0.0, (until - since).total_seconds()), _LONGEST_RETRY_AFTER)


def _http_date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _result(answer: HttpAnswer) -> msgspec.Raw:
    """Status, a few headers and the body, in at most MAX_RESULT_BYTES."""
    headers = {name: answer.headers[name][:_LONGEST_KEPT_HEADER] for name in _KEPT_HEADERS if name in answer.headers}
    kept: dict[str, Any] = {"status": answer.status, "headers": headers, "body": None}
    whole = answer.is_json and not answer.cut and len(answer.body) <= MAX_RESULT_BYTES
    if whole and _decoded(answer.body) is not msgspec.UNSET:
        # Unchanged: a number that is parsed and written again could lose its last digits.
        kept["body"] = msgspec.Raw(answer.body)
    elif answer.body:
        kept["body"] = answer.text + (_CUT if answer.cut or len(answer.body) > _READ_AS_TEXT else "")
    data = msgspec.json.encode(kept)
    if len(data) <= MAX_RESULT_BYTES:
        return msgspec.Raw(data)
    text = answer.text
    kept["body_bytes"] = len(answer.body)
    length = len(text)
    while len(data) > MAX_RESULT_BYTES:
        length = min(length - 1, length * (MAX_RESULT_BYTES - 512) // len(data))
        kept["body"] = text[:length] + _CUT
        data = msgspec.json.encode(kept)
    return msgspec.Raw(data)


def _decoded(body: bytes) -> Any:
    """The body as JSON; UNSET if it is not JSON."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return msgspec.UNSET


def _charset(content_type: str) -> str:
    match = _CHARSET.search(content_type)
    name = "utf-8" if match is None else codecs.lookup(match[1]).name
    return "utf-8" if name in _NO_CHARSETS else name
