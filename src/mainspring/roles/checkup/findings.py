"""What a check has found."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Severity(StrEnum):
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """`check`: what was looked at. `fix`: what to do, if something is wrong."""

    check: str
    severity: Severity
    found: str
    fix: str | None = None


def ok(check: str, found: str) -> Finding:
    return Finding(check, Severity.OK, found)


def warning(check: str, found: str, fix: str) -> Finding:
    return Finding(check, Severity.WARNING, found, fix)


def error(check: str, found: str, fix: str) -> Finding:
    return Finding(check, Severity.ERROR, found, fix)
