"""The checks of an http task: address, method, headers, body and the rule of success."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.execution import check_statuses
from mainspring.domain.intake.kind_checks import CallChecks, check_value
from mainspring.domain.secret_names import check_no_mask
from mainspring.domain.sizes import format_size
from mainspring.domain.texts import check_line, shown
from mainspring.domain.workflows.references import without_references
from mainspring.kernel.config import MAX_PAYLOAD_BYTES
from mainspring.kinds.http import KIND
from mainspring.kinds.http.call import HttpCall, HttpCallIn, SuccessRule
from mainspring.kinds.http.path_memory import LONGEST_PATH, path_problem
from mainspring.wire.execution import RunSetup
from mainspring.wire.secrets import REFERENCE, SecretRef, Variables, references_in

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z", re.ASCII)
_MOST_HEADERS = 64
_LONGEST_HEADER = 8 * 1024
_LONGEST_URL = 8 * 1024
_MOST_ANSWER = 16 * 1024**2  # a response is kept in memory and parsed as a whole; the output of a command is not
_MOST_EQUALS = 64 * 1024
# Headers that Mainspring or the connection sets. A job must not set them too.
_OWN_HEADERS = frozenset(
    {
        "accept-encoding", "connection", "content-length", "expect", "host", "keep-alive", "proxy-connection", "te",
        "traceparent", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")


class HttpChecks(CallChecks):
    takes_callback = True
    a_task = "an http task"
    noun = "a call"
    example = '{"url": "https://example.com/hook", "method": "POST", "body": {}}'
    hint_for_payload = "put the payload in http.body"

    def check(self, given: HttpCall, field: str) -> HttpCall:
        return read_http(given, field)

    def read_payload(self, payload: str | None) -> HttpCall:
        call = http_in(payload)
        if call is None:
            raise InvalidInput("an http task needs a call", field="http", expected='"http": {"url": "https://..."}')
        return call

    def not_a_call(self, error: Exception) -> InvalidInput:
        return InvalidInput(
            f"the payload is not an HTTP call: {error}", field="payload", expected=f"such as {self.example}"
        )

    def check_setup(self, setup: RunSetup) -> None:
        """`limits.output` has an effect: it limits the size of the response."""
        super().check_setup(setup)
        if setup.limits is not None and setup.limits.output is not None and setup.limits.output > _MOST_ANSWER:
            raise InvalidInput(
                f"{shown(setup.limits.output)} is out of range",
                code="invalid_size",
                field="limits.output",
                expected=f"at most {format_size(_MOST_ANSWER)} for an HTTP response",
            )

    def too_deep(self) -> InvalidInput:
        return InvalidInput("the body is nested too deeply", field="http.body")

    def check_places(self, given: HttpCallIn) -> None:
        if wrong := [name for name in given.headers or () if name.startswith("$")]:
            raise InvalidInput(
                "headers have no references", code="invalid_reference", field=f"http.headers.{wrong[0]}",
                expected="references in body and success.equals",
            )  # fmt: skip

    def known_part(self, given: HttpCallIn, value: Any) -> HttpCallIn:
        """A body that is a reference is a body, which not every method takes."""
        body = without_references(given.body)
        success = given.success
        if success is not None:
            success = msgspec.structs.replace(success, equals=without_references(success.equals))
        return msgspec.structs.replace(
            given, body={} if body is None and given.body is not None else body, success=success
        )

    def secrets_in(self, call: HttpCall) -> Iterable[tuple[str, str]]:
        return _secrets_in(call)

    def check_references(self, call: HttpCall, parents: Sequence[str]) -> None:
        self.refuse_references(call.body, "http.body", parents)

    shape = '{"url": ..., "body": ...}'


def read_http(given: HttpCall, field: str) -> HttpCall:
    """`given` with its defaults, as it is stored. Raises InvalidInput."""
    _check_url(given.url, f"{field}.url")
    method = given.method.upper() or ("GET" if given.body is None else "POST")
    if method not in METHODS:
        raise InvalidInput(
            f"{shown(given.method)} is not a method", field=f"{field}.method", expected=", ".join(METHODS)
        )
    if given.body is not None:
        if method in ("GET", "HEAD"):
            raise InvalidInput(f"{method} takes no body", field=f"{field}.body", hint='set "method": "POST"')
        check_value(given.body, f"{field}.body", MAX_PAYLOAD_BYTES)
        for where, reference in references_in(given.body, f"{field}.body"):
            _read_reference(reference, where)
    _check_headers(given.headers, f"{field}.headers")
    if given.success is not None:
        _check_success(given.success, f"{field}.success")
    success = None if given.success is None else SuccessRule(**msgspec.structs.asdict(given.success))
    return HttpCall(**{**msgspec.structs.asdict(given), "method": method, "success": success})


def _secrets_in(call: HttpCall) -> Iterator[tuple[str, str]]:
    for name, value in call.headers.items():
        if isinstance(value, SecretRef):
            yield f"http.headers.{name}", value.name
    for where, reference in references_in(call.body, "http.body"):
        yield where, _read_reference(reference, where).name


def http_in(payload: str | None) -> HttpCall | None:
    """The call in the payload of an http task. None if there is no payload."""
    call: HttpCall | None = CHECKS.call_in(payload)
    return call


def _check_url(url: str, field: str) -> None:
    check_line(url, field)
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number, or an incomplete IPv6 address
        usable = False
    if not usable or len(url) > _LONGEST_URL or " " in url or "\\" in url:
        raise InvalidInput(f"{shown(url)} is not an address", field=field, expected="such as https://example.com/hook")
    if parts.username is not None or parts.password is not None:
        raise InvalidInput(
            "the address contains a user name or a password, which would appear in logs",
            field=field,
            hint="send an Authorization header",
        )


def _read_reference(value: Any, where: str) -> SecretRef:
    try:
        return msgspec.convert(value, SecretRef)
    except msgspec.ValidationError as error:
        raise InvalidInput(
            f"this is no reference to a secret: {error}", code="invalid_reference", field=where,
            expected=f'{{"{REFERENCE}": "name-of-the-secret"}}',
        ) from None  # fmt: skip


def _check_headers(headers: Variables, field: str) -> None:
    if len(headers) > _MOST_HEADERS:
        raise InvalidInput("too many headers", field=field, expected=f"at most {_MOST_HEADERS}")
    if len({name.lower() for name in headers}) < len(headers):
        raise InvalidInput("a header is given twice", field=field, hint="header names are not case-sensitive")
    for name, value in headers.items():
        text = value if isinstance(value, str) else ""
        if not _HEADER.match(name) or len(text) > _LONGEST_HEADER:
            raise InvalidInput(
                f"{shown(name)} is not a header, or its value is too long",
                field=field,
                expected=f"a name such as X-Team, and at most {_LONGEST_HEADER} characters",
            )
        if name.lower() in _OWN_HEADERS or name.lower().startswith("mainspring-"):
            raise InvalidInput(
                f"the header {name} is set by Mainspring itself", field=f"{field}.{name}", hint="leave it out"
            )
        check_line(text, f"{field}.{name}")
        check_no_mask(name, text, f"{field}.{name}")
        if not text.isascii() or text != text.strip():
            raise InvalidInput(
                f"the header {name} is not plain ASCII, or has spaces around it",
                field=f"{field}.{name}",
                expected="such as application/json",
            )


def _check_success(rule: SuccessRule, field: str) -> None:
    check_statuses(rule.status, f"{field}.status")
    if rule.equals is not msgspec.UNSET and rule.json is None:
        raise InvalidInput("equals needs a path", field=f"{field}.json", expected='such as "$.ok"')
    if rule.equals is not msgspec.UNSET:
        check_value(rule.equals, f"{field}.equals", _MOST_EQUALS)
    if rule.json is not None:
        _check_path(rule.json, f"{field}.json")


def _check_path(path: str, field: str) -> None:
    """Refuse a JSONPath whose cost grows faster than the size of the response. The worker evaluates it."""
    check_line(path, field)
    if (problem := path_problem(path)) is not None:
        raise InvalidInput(f"{shown(path)} is not a JSONPath: {problem}", field=field, expected='such as "$.ok"')
    plain = _QUOTED.sub("", path)
    if (
        len(path) > LONGEST_PATH
        or max(plain.count(".."), plain.count("?"), plain.count("$")) > 1
        or plain.count(",") > 3
        or "match(" in plain
        or "search(" in plain
    ):
        raise InvalidInput(
            f"{shown(path)} is too expensive to evaluate",
            field=field,
            expected="at most one .., one filter and 3 commas, no match() and no search()",
        )


CHECKS = HttpChecks(KIND)
