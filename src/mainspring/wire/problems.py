"""Problem documents (RFC 9457). Every error response is one."""

from __future__ import annotations

import msgspec

PROBLEM_MEDIA_TYPE = "application/problem+json"


class FieldProblem(msgspec.Struct, omit_defaults=True):
    """One problem of the input. `field` is a path such as `schedule.cron` or `jobs[3].payload`."""

    field: str
    code: str
    detail: str
    hint: str | None = None
    index: int | None = None


class Problem(msgspec.Struct, omit_defaults=True):
    """limit, used: of the quota that the request exceeds."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    field: str | None = None
    expected: str | None = None
    hint: str | None = None
    errors: list[FieldProblem] = []
    limit: int | None = None
    used: int | None = None
