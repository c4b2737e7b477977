"""Reads requests like the server: decodes JSON text and passes it to intake."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from mainspring.domain.intake.patch import amend
from mainspring.domain.intake.request import define
from mainspring.domain.job import JobDefinition
from mainspring.wire.jobs import JobPatch, JobRequest

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
_request = msgspec.json.Decoder(JobRequest)
_patch = msgspec.json.Decoder(JobPatch)


def text_of(body: str | bytes | dict[str, Any]) -> str | bytes:
    return msgspec.json.encode(body) if isinstance(body, dict) else body


def defined(body: str | bytes | dict[str, Any]) -> JobDefinition:
    return define(_request.decode(text_of(body)), NOW)


def amended(stored: JobDefinition, body: str | bytes | dict[str, Any]) -> JobDefinition:
    return amend(stored, _patch.decode(text_of(body)), NOW)
