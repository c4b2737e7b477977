"""Turns errors into problem documents. The HTTP status of an error is decided only here."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any

import asyncpg
import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from mainspring.domain import errors
from mainspring.kernel.logs import PacedLog, get_logger
from mainspring.kernel.patience import ClientGone
from mainspring.store.pool import AWAY, NoFreeConnection
from mainspring.wire.problems import PROBLEM_MEDIA_TYPE, FieldProblem, Problem

log = get_logger("api")
# Every request that is under way when the database goes away ends here.
_UNAVAILABLE = PacedLog(log)

# The last one occurs once per connection after a migration has changed the columns that a statement returns.
_ROLLED_BACK = (
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
    asyncpg.SerializationError,
    asyncpg.InvalidCachedStatementError,
)

STATUS: dict[type[errors.MainspringError], int] = {
    errors.InvalidInput: 422,
    errors.NotSupportedYet: 422,
    errors.PayloadTooLarge: 413,
    errors.WrongMediaType: 415,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.VersionMismatch: 412,
    errors.Conflict: 409,
    errors.QueueFull: 429,
    errors.OverQuota: 429,
    errors.TooManyRequests: 429,
    errors.BodyTooSlow: 408,
    errors.Unavailable: 503,
    errors.MainspringError: 500,
}
_LONGEST_TEXT = 200  # of a path or a value in a response
_STATUS_BY_CODE = {"invalid_json": 400}
_BOUNDS = (
    (re.compile(r"Expected `int` >= (-?\d+)"), r"expected at least \1"),
    (re.compile(r"Expected `int` <= (-?\d+)"), r"expected at most \1"),
    (re.compile(r"Expected `int`, got `str`"), "expected a whole number"),
)
_MISSING = re.compile(r"Missing required \w+ parameter '([^']*)'")  # in a message of the framework
_encode = msgspec.json.Encoder().encode


def status_of(error: errors.MainspringError) -> int:
    if error.code in _STATUS_BY_CODE:
        return _STATUS_BY_CODE[error.code]
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def problem_of(error: errors.MainspringError) -> Problem:
    return Problem(
        type=f"urn:mainspring:problem:{error.code}",
        title=error.code.replace("_", " "),
        status=status_of(error),
        code=error.code,
        detail=error.detail,
        field=error.field,
        expected=error.expected,
        hint=error.hint,
        errors=getattr(error, "errors", []),
        limit=getattr(error, "limit", None),
        used=getattr(error, "used", None),
    )


def respond(problem: Problem, headers: dict[str, str] | None = None) -> Response[bytes]:
    return Response(_encode(problem), status_code=problem.status, media_type=PROBLEM_MEDIA_TYPE, headers=headers or {})


def on_mainspring_error(_request: Request[Any, Any, Any], error: errors.MainspringError) -> Response[bytes]:
    _forget_frames(error)
    headers = {}
    if isinstance(error, errors.Unavailable):
        headers["Retry-After"] = str(error.retry_after)
    if isinstance(error, errors.Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    return respond(problem_of(error), headers)


def _forget_frames(error: BaseException | None) -> None:
    """An error that a future has raised refers to frames which refer to the future. Only the garbage collector would
    free them, and with them the request and its body."""
    while error is not None and error.__traceback__ is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def _nearest_route(request: Request[Any, Any, Any]) -> str:
    """A hint for a path that does not exist. Only routes with as many segments are compared: anybody may ask."""
    path = request.url.path.rstrip("/")
    parts = path.split("/")
    if len(path) <= _LONGEST_TEXT:
        templates = [route.path_format.rstrip("/") for route in request.app.routes]
        if shorter := _without_first(parts, templates):
            return f"did you mean {shorter}?"
        filled = {_filled(one, parts): one for one in templates if one.count("/") == len(parts) - 1}
        if near := get_close_matches(path, filled, n=1, cutoff=0.85):
            return f"did you mean {filled[near[0]]}?"
    return "GET /schema/openapi.json lists every route"


def _without_first(parts: list[str], templates: list[str]) -> str | None:
    """The route that the path has without its first noun: /v1/notifications/channels/x."""
    if len(parts) < 4:
        return None
    fewer = [*parts[:2], *parts[3:]]
    path = "/".join(fewer)
    return next(
        (
            one
            for one in templates
            if one.count("/") == len(fewer) - 1 and one.split("/")[2:3] == fewer[2:3] and _filled(one, fewer) == path
        ),
        None,
    )


def _filled(template: str, parts: list[str]) -> str:
    """The path of a route, with the names of the request in place of its parameters."""
    segments = zip(template.split("/"), parts, strict=True)
    return "/".join(part if segment.startswith("{") else segment for segment, part in segments)


def _plain(words: str) -> str:
    """What the decoder says about a parameter, without its types."""
    for pattern, plain in _BOUNDS:
        words = pattern.sub(plain, words)
    return words.replace("`", "")


def on_http_error(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """Errors that the framework raises: no such route, wrong method, a query parameter of the wrong type."""
    status = error.status_code
    code = {404: "no_such_route", 405: "method_not_allowed", 400: "malformed_request"}.get(status, "http_error")
    if error.status_code == 413:
        return on_mainspring_error(request, _body_too_large(request))
    detail, field, problems, hint = error.detail, None, [], None
    if error.status_code == 405:
        hint = str(error.extra[0]) if isinstance(error.extra, list) else None  # of routing.py
    if error.status_code == 404:
        hint = _nearest_route(request)
        detail = f"there is no {request.url.path[:_LONGEST_TEXT]}"
    if isinstance(error, ValidationException) and isinstance(error.extra, list):
        status, code = 422, "invalid_parameter"
        problems = [
            FieldProblem(str(item.get("key", "?")), "invalid_parameter", _plain(str(item.get("message", ""))))
            for item in error.extra
            if isinstance(item, dict)
        ]
        if any(problem.field == "data" for problem in problems):  # the framework calls the body `data`; it is missing
            return on_mainspring_error(request, _no_body())
        if problems:
            field, detail = problems[0].field, f"{problems[0].field}: {problems[0].detail}"
    elif isinstance(error, ValidationException) and (missing := _MISSING.match(error.detail)):
        status, code, field = 422, "invalid_parameter", missing[1]
        detail, hint = f"{field} is missing", f"give {field}"
    return respond(
        Problem(
            type=f"urn:mainspring:problem:{code}",
            title=code.replace("_", " "),
            status=status,
            code=code,
            detail=detail,
            field=field,
            errors=problems,
            hint=hint,
        ),
        dict(error.headers or {}),
    )


def _no_body() -> errors.InvalidInput:
    return errors.InvalidInput("the body is empty", code="invalid_json", field="$", expected="a JSON object")


def _body_too_large(request: Request[Any, Any, Any]) -> errors.PayloadTooLarge:
    most = request.route_handler.resolve_request_max_body_size()
    return errors.PayloadTooLarge(
        "the body is too large", field="$", expected=f"at most {most} bytes", hint="send it in parts"
    )


def on_other_error(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    if isinstance(error, _ROLLED_BACK):
        log.warning(
            "the transaction was rolled back because of a concurrent one", path=request.url.path, error=repr(error)
        )
        return on_mainspring_error(
            request,
            errors.Unavailable(
                "a concurrent change was in conflict; nothing was stored", code="busy", hint="try again"
            ),
        )
    # The driver also raises InterfaceError for a value that it cannot encode, such as a number that is too large. That
    # is not an outage.
    if isinstance(error, asyncpg.DataError | asyncpg.UntranslatableCharacterError) or (
        isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError)
    ):
        return on_mainspring_error(
            request,
            errors.InvalidInput(
                f"PostgreSQL cannot store a value: {_first_line(error)}",
                code="unstorable_value",
                hint="check the payload",
            ),
        )
    if isinstance(error, ClientGone):
        return on_mainspring_error(request, errors.Unavailable("the client has gone", code="store_down"))
    if isinstance(error, AWAY):
        request.app.state.open_requests.note(error)
        _UNAVAILABLE.warning("the database is unavailable", path=request.url.path, error=repr(error))
        outage = errors.Unavailable("the database is unavailable", code="store_down", hint="try again shortly")
        if isinstance(error, NoFreeConnection):
            outage = errors.Unavailable(error.DETAIL, code="store_down", hint=error.FIX)
        elif isinstance(error, asyncpg.DiskFullError):
            outage = errors.Unavailable(
                "the disk of PostgreSQL is full", code="store_down", hint="free space there, then try again"
            )
        elif isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            outage = errors.Unavailable(
                "PostgreSQL accepts no changes at present: it is read-only", code="store_down", hint="try again shortly"
            )
        return on_mainspring_error(request, outage)
    log.error("request failed", path=request.url.path, method=request.method, exc_info=error)
    return respond(
        Problem(
            type="urn:mainspring:problem:internal",
            title="internal error",
            status=500,
            code="internal",
            detail="internal server error; the server's log has the details",
        )
    )


def _first_line(error: Exception) -> str:
    """The first line of the message, shortened. The driver's messages contain the whole value."""
    line = str(error).partition("\n")[0]
    return line if len(line) <= _LONGEST_TEXT else f"{line[:_LONGEST_TEXT]}..."
