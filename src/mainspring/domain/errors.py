"""Every error the product raises, grouped by what the caller can do about it.

MainspringError
├── InvalidInput        mend the request (422; `invalid_json` 400)
│   └── InvalidBatch    the same, many at once, by index (422)
├── NotSupportedYet     leave the field out for now (422)
├── PayloadTooLarge     send less (413)
├── WrongMediaType      send JSON (415)
├── Unauthorized        send a valid token (401)
├── Forbidden           ask from an allowed place (403)
├── NotFound            look elsewhere (404)
├── Conflict            look at the present state first (409)
│   ├── Fenced          stop working on this run (409)
│   └── VersionMismatch read the job again (412)
└── Unavailable         try again shortly (503)
"""

from __future__ import annotations

from mainspring.wire.problems import FieldProblem


class MainspringError(Exception):
    """Base of all. `code` is stable; `detail` is for people."""

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
        advice = [f"expected {expected}"] if expected else []
        advice += [hint] if hint else []
        if advice:  # a traceback shows it below the message
            self.add_note(f"{field}: {'; '.join(advice)}" if field else "; ".join(advice))

    def as_field_problem(self, index: int | None = None) -> FieldProblem:
        field = self.field or "$"
        if index is not None:
            field = f"jobs[{index}].{self.field}" if self.field else f"jobs[{index}]"
        return FieldProblem(field=field, code=self.code, detail=self.detail, hint=self.hint, index=index)


class InvalidInput(MainspringError):
    code = "invalid_input"


class InvalidBatch(InvalidInput):
    """Several jobs of a batch are wrong; nothing of it was stored."""

    code = "invalid_batch"

    def __init__(self, errors: list[FieldProblem], *, more: bool = False) -> None:
        first = errors[0]
        count = f"{len(errors)}{' or more' if more else ''}"
        super().__init__(
            f"{count} problem(s) in the batch, none of it was stored; the first: {first.field}: {first.detail}",
            field=first.field,
            hint=first.hint,
        )
        self.errors = errors


class NotSupportedYet(MainspringError):
    code = "not_supported_yet"


class PayloadTooLarge(MainspringError):
    code = "payload_too_large"


class WrongMediaType(MainspringError):
    code = "unsupported_media_type"


class Unauthorized(MainspringError):
    code = "unauthorized"


class Forbidden(MainspringError):
    code = "forbidden"


class NotFound(MainspringError):
    code = "not_found"


class Conflict(MainspringError):
    code = "conflict"
    errors: list[FieldProblem] = []  # noqa: RUF012 - replaced, never mutated


class Fenced(Conflict):
    code = "fenced"


class VersionMismatch(Conflict):
    code = "version_mismatch"


class Unavailable(MainspringError):
    code = "unavailable"
    retry_after: int = 1
