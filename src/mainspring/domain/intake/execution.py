"""Intake of the fields that executors read: environment, limits, sandbox, user, HTTP call. And of required labels."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import msgspec

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidInput, PayloadTooLarge
from mainspring.domain.intake.json_paths import LONGEST_PATH, path_problem
from mainspring.domain.sizes import format_size, parse_size
from mainspring.domain.texts import check_line, check_prose, shown
from mainspring.kernel.config import MAX_PAYLOAD_BYTES
from mainspring.wire.execution import HttpCall, HttpCallIn, ResourceLimits, RunSetup, SuccessRule
from mainspring.wire.jobs import JobRequest, ResourceLimitsIn

SANDBOXES = ("bubblewrap",)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_OUR_PREFIX = "MAINSPRING_"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z", re.ASCII)
_STATUS_CLASS = re.compile(r"[1-5]xx\Z", re.ASCII)
_MOST_VARIABLES = 256
_MOST_ENV_BYTES = 64 * 1024
_MOST_HEADERS = 64
_LONGEST_HEADER = 8 * 1024
_LONGEST_URL = 8 * 1024
_LONGEST_GRACE = 3600.0
_LEAST_MEMORY = 16 * 1024 * 1024
_LEAST_FILES = 16
_LEAST_DISK = 64 * 1024
_MOST_OUTPUT = 10 * 1024**3
_MOST_ANSWER = 16 * 1024**2  # a response is kept in memory and parsed as a whole; the output of a command is not
_MOST_STATUSES = 100
_MOST_EQUALS = 64 * 1024
_NUL_IN_JSON = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")  # after an even number of backslashes
# Headers that Mainspring or the connection sets. A job must not set them too.
_OWN_HEADERS = frozenset(
    {
        "accept-encoding", "connection", "content-length", "expect", "host", "keep-alive", "proxy-connection", "te",
        "traceparent", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
_USER = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,31}\Z")
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")


def read_setup(request: JobRequest, http: HttpCall | None) -> RunSetup | None:
    """The execution settings of the request. None if it has none."""
    if (
        http is None
        and request.env is None
        and request.limits is None
        and request.sandbox is None
        and request.run_as is None
        and request.kill_grace is None
    ):
        return None
    grace = request.kill_grace
    setup = RunSetup(
        env=_env(request.env),
        limits=None if request.limits is None else _limits(request.limits),
        sandbox=read_sandbox(request.sandbox),
        run_as=_run_as(request.run_as),
        kill_grace=None if grace is None else parse_duration(grace, "kill_grace", most=_LONGEST_GRACE),
        http=http,
    )
    if http is not None:
        _check_fit_for_http(setup)
    return None if setup == RunSetup() else setup


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
        _check_value(given.body, f"{field}.body", MAX_PAYLOAD_BYTES)
    _check_headers(given.headers, f"{field}.headers")
    if given.success is not None:
        _check_success(given.success, f"{field}.success")
    success = None if given.success is None else SuccessRule(**msgspec.structs.asdict(given.success))
    return HttpCall(**{**msgspec.structs.asdict(given), "method": method, "success": success})


_read_http_payload = msgspec.json.Decoder(HttpCallIn).decode


def http_in(payload: str | None) -> HttpCall | None:
    """The call in the payload of an http task. None if there is no payload."""
    if payload is None:
        return None
    try:
        return read_http(_read_http_payload(payload), "payload")
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(
            f"the payload is not an HTTP call: {error}",
            field="payload",
            expected='such as {"url": "https://example.com/hook", "method": "POST", "body": {}}',
        ) from None


def read_required_labels(labels: dict[str, str] | None) -> dict[str, str] | None:
    if not labels:
        return None
    if len(labels) > 16:
        raise InvalidInput("too many labels", field="required_labels", expected="at most 16")
    for name, value in labels.items():
        for text in (name, value):
            check_line(text, "required_labels")
            if not 1 <= len(text) <= 200:
                raise InvalidInput(
                    f"the label {shown(name)} is empty or too long",
                    field="required_labels",
                    expected="names and values of 1 to 200 characters",
                )
    return dict(sorted(labels.items()))


def _check_fit_for_http(setup: RunSetup) -> None:
    """Refuse fields without effect on an HTTP call. `limits.output` has one: it limits the size of the response."""
    limits = setup.limits or ResourceLimits()
    given = [field for field in ("env", "sandbox", "run_as", "kill_grace") if getattr(setup, field) is not None]
    given += [
        f"limits.{name}"
        for name in ("memory", "cpu", "processes", "files", "disk")
        if getattr(limits, name) is not None
    ]
    for field in given:
        raise InvalidInput(f"{field} has no effect on an http task", field=field, hint="leave it out")
    if limits.output is not None and limits.output > _MOST_ANSWER:
        raise InvalidInput(
            f"{shown(limits.output)} is out of range",
            code="invalid_size",
            field="limits.output",
            expected=f"at most {format_size(_MOST_ANSWER)} for an HTTP response",
        )


def limits_as_given(limits: ResourceLimits | None) -> ResourceLimitsIn | None:
    return None if limits is None else ResourceLimitsIn(*msgspec.structs.astuple(limits))


def _env(env: dict[str, str] | None) -> dict[str, str] | None:
    if not env:
        return None
    if len(env) > _MOST_VARIABLES or sum(len(name) + len(value) for name, value in env.items()) > _MOST_ENV_BYTES:
        raise InvalidInput(
            "the environment is too large",
            field="env",
            expected=f"at most {_MOST_VARIABLES} variables and {_MOST_ENV_BYTES} characters",
        )
    for name, value in env.items():
        if not _VARIABLE.match(name):
            raise InvalidInput(
                f"{shown(name)} is not the name of a variable", field="env", expected="letters, digits and _"
            )
        if name.startswith(_OUR_PREFIX):
            raise InvalidInput(f"{name} is set by Mainspring itself", field=f"env.{name}", hint="choose another name")
        check_prose(value, f"env.{name}")
    return env


def _limits(given: ResourceLimitsIn) -> ResourceLimits | None:
    limits = ResourceLimits(
        memory=None if given.memory is None else parse_size(given.memory, "limits.memory", least=_LEAST_MEMORY),
        cpu=None if given.cpu is None else parse_duration(given.cpu, "limits.cpu", least=0.1),
        processes=_count(given.processes, "limits.processes", 1),
        files=_count(given.files, "limits.files", _LEAST_FILES),
        output=None if given.output is None else parse_size(given.output, "limits.output", least=0, most=_MOST_OUTPUT),
        disk=None if given.disk is None else parse_size(given.disk, "limits.disk", least=_LEAST_DISK),
    )
    return None if limits == ResourceLimits() else limits


def _count(value: int | None, field: str, least: int) -> int | None:
    if value is not None and not least <= value <= 1_000_000:
        raise InvalidInput(
            f"{shown(value)} is out of range", field=field, expected=f"a whole number from {least} to 1,000,000"
        )
    return value


def read_sandbox(word: str | None) -> str | None:
    """The name of a known sandbox. None for no sandbox."""
    if word is None or word.lower() == "none":
        return None
    if word.lower() not in SANDBOXES:
        raise InvalidInput(f"{shown(word)} is not a sandbox", field="sandbox", expected=" or ".join(SANDBOXES))
    return word.lower()


def _run_as(name: str | None) -> str | None:
    """The name of a user of the worker's machine, which only the worker knows."""
    if name is not None and not _USER.match(name):
        raise InvalidInput(
            f"{shown(name)} is not the name of a user",
            field="run_as",
            expected="1 to 32 letters, digits, '_', '-' and '.', not beginning with '-'",
        )
    return name


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


def _check_headers(headers: dict[str, str], field: str) -> None:
    if len(headers) > _MOST_HEADERS:
        raise InvalidInput("too many headers", field=field, expected=f"at most {_MOST_HEADERS}")
    if len({name.lower() for name in headers}) < len(headers):
        raise InvalidInput("a header is given twice", field=field, hint="header names are not case-sensitive")
    for name, value in headers.items():
        if not _HEADER.match(name) or len(value) > _LONGEST_HEADER:
            raise InvalidInput(
                f"{shown(name)} is not a header, or its value is too long",
                field=field,
                expected=f"a name such as X-Team, and at most {_LONGEST_HEADER} characters",
            )
        if name.lower() in _OWN_HEADERS or name.lower().startswith("mainspring-"):
            raise InvalidInput(
                f"the header {name} is set by Mainspring itself", field=f"{field}.{name}", hint="leave it out"
            )
        check_line(value, f"{field}.{name}")
        if not value.isascii() or value != value.strip():
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
        _check_value(rule.equals, f"{field}.equals", _MOST_EQUALS)
    if rule.json is not None:
        _check_path(rule.json, f"{field}.json")


def _check_value(value: object, field: str, most: int) -> None:
    """Check a value that is stored in the job's spec: its size, and that it does not contain NUL. PostgreSQL cannot
    read such JSON: one such job made every query that reads specs fail, and could not be fired."""
    text = value.encode() if isinstance(value, str) else msgspec.json.encode(value)
    if len(text) > most:
        raise PayloadTooLarge(
            f"{field} has {len(text)} bytes", field=field, expected=f"at most {most} bytes",
            hint="store it elsewhere and send a reference",
        )  # fmt: skip
    if b"\0" in text or (not isinstance(value, str) and _NUL_IN_JSON.search(text)):
        raise InvalidInput(f"{field} contains the character NUL", field=field, expected="plain text")


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


def check_statuses(statuses: list[int | str], field: str) -> None:
    """Check a list of statuses: numbers from 100 to 599, and classes such as "5xx"."""
    if len(statuses) > _MOST_STATUSES:
        raise InvalidInput("too many statuses", field=field, expected=f"at most {_MOST_STATUSES}")
    for status in statuses:
        good = _STATUS_CLASS.match(status) if isinstance(status, str) else 100 <= status <= 599
        if not good or isinstance(status, bool):
            raise InvalidInput(f"{shown(status)} is not an HTTP status", field=field, expected='such as 404 or "5xx"')
