"""Every error that the product raises, grouped by what the caller can do about it.

MainspringError
├── InvalidInput        correct the request (422; `invalid_json` 400)
│   └── InvalidBatch    correct the named jobs of the batch (422)
├── NotSupportedYet     leave the field out (422)
├── PayloadTooLarge     send less (413)
├── WrongMediaType      send JSON (415)
├── Unauthorized        send a valid token (401)
├── Forbidden           use a token with the needed rights, or an allowed address (403)
│   └── QuotaExceeded   use less, or ask for a higher quota (403)
├── NotFound            check the id or the address (404)
├── Conflict            read the current state first (409)
│   ├── Fenced          stop working on this run (409)
│   ├── Unreadable      upgrade, or cancel the job (409)
│   └── VersionMismatch read the job again (412)
├── BodyTooSlow         send the body faster, or less (408)
└── Unavailable         try again shortly (503)
    ├── QueueFull       try again when fewer runs wait (429)
    ├── OverQuota       try again after the seconds of Retry-After (429)
    └── TooManyRequests try again when fewer requests of the tenant are under way (429)
"""

from __future__ import annotations

import re

from mainspring.kernel.ownership import ForeignFile
from mainspring.wire.problems import FieldProblem


class MainspringError(Exception):
    """The base class of all errors that Mainspring raises.

    `code` is stable and for programs. The other attributes are for people.
    `detail` says what is wrong, `field` says where, `expected` says which values are valid, and `hint` says what to do.
    `detail`, `expected` and `hint` are phrases without a full stop. `expected` must not repeat `detail`.
    """

    code = "error"

    def __init__(
        self,
        detail: str,
        *,
        code: str | None = None,
        field: str | None = None,
        expected: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.field = field
        self.expected = expected
        self.hint = hint
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        """The detail, with its field and what to do about it."""
        return self.in_sentences() if self.advice() else self.located_detail()

    def advice(self) -> list[str]:
        """What the caller should do, as phrases: ["expected at most 10000 jobs", "send them in parts"]."""
        told = self.expected is None or f"Expected {self.expected}" in self.detail
        expected = [] if told else [f"expected {self.expected}"]
        return [*expected, self.hint] if self.hint else expected

    def located_detail(self) -> str:
        """The detail with its field, unless it names the field itself: `timeout: '5 minutes' is not a duration`."""
        if self.field is None or self.field == "$" or re.search(rf"(?<!\w){re.escape(self.field)}(?!\w)", self.detail):
            return self.detail
        return f"{self.field}: {self.detail}"

    def in_sentences(self) -> str:
        """Everything in one line: `timeout: '5 minutes' is not a duration. Write "90s", "15m" or ...`"""
        advice = [phrase[0].upper() + phrase[1:] for phrase in self.advice()]
        return " ".join(phrase if phrase[-1] in ".?!" else f"{phrase}." for phrase in (self.located_detail(), *advice))

    def as_field_problem(self, index: int | None = None) -> FieldProblem:
        """The error as one entry of a problem document, with the index of its job in a batch."""
        field = self.field or "$"
        if index is not None:
            field = f"jobs[{index}].{self.field}" if self.field else f"jobs[{index}]"
        return FieldProblem(field=field, code=self.code, detail=self.detail, hint=self.hint, index=index)


class InvalidInput(MainspringError):
    """The request or an argument is invalid. `field` names what to correct (422, or 400 for invalid JSON)."""

    code = "invalid_input"


class InvalidBatch(InvalidInput):
    """Some jobs of a batch are invalid. No job of the batch was stored."""

    code = "invalid_batch"

    def __init__(self, errors: list[FieldProblem], *, more: bool = False) -> None:
        first = errors[0]
        count = f"{len(errors)}{' or more' if more else ''}"
        super().__init__(
            f"the batch has {count} problem(s) and none of it was stored; the first: {first.field}: {first.detail}",
            field=first.field,
            hint=first.hint,
        )
        self.errors = errors


class NotSupportedYet(MainspringError):
    """The request uses a field of a feature that does not exist yet (422)."""

    code = "not_supported_yet"


class PayloadTooLarge(MainspringError):
    """The request or its payload is too large (413)."""

    code = "payload_too_large"


class WrongMediaType(MainspringError):
    """The body of the request is not declared as JSON (415)."""

    code = "unsupported_media_type"


class Unauthorized(MainspringError):
    """The token is missing, unknown, expired or revoked (401)."""

    code = "unauthorized"


class Forbidden(MainspringError):
    """The token may not do this, or an address or a data folder is not allowed (403)."""

    code = "forbidden"


class QuotaExceeded(Forbidden):
    """The request needs more than a quota of the tenant leaves, and waiting does not help (403). Nothing was stored.
    `limit` and `used`: of the quota."""

    code = "quota_exceeded"
    limit: int | None = None
    used: int | None = None


class NotFound(MainspringError):
    """There is no such job, run, worker or address for this token (404)."""

    code = "not_found"


class Conflict(MainspringError):
    """The present state does not allow this: a job id is taken, or a run has ended (409)."""

    code = "conflict"
    errors: list[FieldProblem] = []  # noqa: RUF012 - replaced, never mutated


class Unreadable(Conflict):
    """What is stored about a job or a run cannot be read, for example because a newer version wrote it (409)."""

    code = "unreadable"


class Fenced(Conflict):
    """The run belongs to another worker by now, or the worker was declared lost (409)."""

    code = "fenced"


class VersionMismatch(Conflict):
    """The object has changed since the version or the tag that `if_version` or `if_match` names (412)."""

    code = "version_mismatch"


class Unavailable(MainspringError):
    """No server answers, or it is overloaded or without its database (503). `retry_after` is in seconds."""

    code = "unavailable"
    retry_after: int = 1


class QueueFull(Unavailable):
    """Too many runs wait in the queue or the tenant (429). Nothing was stored."""

    code = "queue_full"


class OverQuota(Unavailable):
    """The tenant has used up a quota for the moment (429). Nothing was stored. `limit` and `used`: of the quota."""

    code = "over_quota"
    limit: int | None = None
    used: int | None = None


class TooManyRequests(Unavailable):
    """Too many requests of the tenant wait for work that a server does for a few requests at a time (429). Nothing was
    stored."""

    code = "too_many_requests"


class BodyTooSlow(MainspringError):
    """The body of a request came too slowly, while others waited (408). Nothing was stored."""

    code = "body_too_slow"


def not_ours(error: ForeignFile) -> Forbidden:
    """The refusal of a data folder that another user controls."""
    return Forbidden(str(error), code="data_folder_not_ours", field="data", hint=error.fix)


def key_reused(key: str) -> Conflict:
    """The refusal of an idempotency key that stands for another request."""
    return Conflict(
        f"the idempotency key {key!r} was used with another body",
        code="idempotency_key_reused",
        field="idempotency_key",
        hint="send the same body, or a new key",
    )
