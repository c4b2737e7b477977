"""Turns errors into problem documents. The HTTP status of an error is decided only here."""

from __future__ import annotations

import asyncpg
import msgspec

from mainspring.api.routing import MethodNotAllowed
from mainspring.api.web import Response, Scope
from mainspring.domain import errors
from mainspring.kernel.logs import PacedLog, get_logger
from mainspring.store.pool import AWAY, NoFreeConnection
from mainspring.wire.problems import PROBLEM_MEDIA_TYPE, Problem

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
    MethodNotAllowed: 405,
    errors.VersionMismatch: 412,
    errors.Conflict: 409,
    errors.QueueFull: 429,
    errors.OverQuota: 429,
    errors.TooManyRequests: 429,
    errors.BodyTooSlow: 408,
    errors.Unavailable: 503,
    errors.MainspringError: 500,
}
_LONGEST_TEXT = 200  # of a value in a response
_STATUS_BY_CODE = {"invalid_json": 400, "malformed_request": 400}
_encode = msgspec.json.Encoder().encode
_INTERNAL = Problem(
    type="urn:mainspring:problem:internal",
    title="internal error",
    status=500,
    code="internal",
    detail="internal server error; the server's log has the details",
)


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


def answer_to(error: Exception, scope: Scope) -> Response[bytes]:
    """The problem document of an error, whatever it is."""
    known = error if isinstance(error, errors.MainspringError) else _known(error, scope)
    if known is None:
        log.error("request failed", path=scope["path"], method=scope["method"], exc_info=error)
        return _respond(_INTERNAL, {})
    _forget_frames(known)
    headers = {}
    if isinstance(known, errors.Unavailable):
        headers["Retry-After"] = str(known.retry_after)
    if isinstance(known, errors.Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(known, MethodNotAllowed):
        headers["Allow"] = known.allow
    return _respond(problem_of(known), headers)


def _respond(problem: Problem, headers: dict[str, str]) -> Response[bytes]:
    answer: Response[bytes] = Response(_encode(problem), media_type=PROBLEM_MEDIA_TYPE, headers=headers)
    answer.encode(problem.status)
    return answer


def _forget_frames(error: BaseException | None) -> None:
    """An error that a future has raised refers to frames which refer to the future. Only the garbage collector would
    free them, and with them the request and its body."""
    while error is not None and error.__traceback__ is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def _known(error: Exception, scope: Scope) -> errors.MainspringError | None:
    """What an error of PostgreSQL means to a client. None if it means nothing."""
    if isinstance(error, _ROLLED_BACK):
        log.warning(
            "the transaction was rolled back because of a concurrent one", path=scope["path"], error=repr(error)
        )
        return errors.Unavailable(
            "a concurrent change was in conflict; nothing was stored", code="busy", hint="try again"
        )
    # The driver also raises InterfaceError for a value that it cannot encode, such as a number that is too large. That
    # is not an outage.
    if isinstance(error, asyncpg.DataError | asyncpg.UntranslatableCharacterError) or (
        isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError)
    ):
        return errors.InvalidInput(
            f"PostgreSQL cannot store a value: {_first_line(error)}", code="unstorable_value", hint="check the payload"
        )
    if not isinstance(error, AWAY):
        return None
    scope["app"].state.open_requests.note(error)
    _UNAVAILABLE.warning("the database is unavailable", path=scope["path"], error=repr(error))
    if isinstance(error, NoFreeConnection):
        return errors.Unavailable(error.DETAIL, code="store_down", hint=error.FIX)
    if isinstance(error, asyncpg.DiskFullError):
        return errors.Unavailable(
            "the disk of PostgreSQL is full", code="store_down", hint="free space there, then try again"
        )
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        return errors.Unavailable(
            "PostgreSQL accepts no changes at present: it is read-only", code="store_down", hint="try again shortly"
        )
    return errors.Unavailable("the database is unavailable", code="store_down", hint="try again shortly")


def _first_line(error: Exception) -> str:
    """The first line of the message, shortened. The driver's messages contain the whole value."""
    line = str(error).partition("\n")[0]
    return line if len(line) <= _LONGEST_TEXT else f"{line[:_LONGEST_TEXT]}..."
