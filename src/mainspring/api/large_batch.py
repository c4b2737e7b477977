"""A batch of jobs that is too large to decode in one go, or that has something wrong in it.

Its elements are found first, without building them, and then decoded one by one, in slices. Too many jobs, or a job
that is too large, are refused before anything is built.
"""

from __future__ import annotations

import re

import msgspec

from mainspring.api.array_scanner import ArrayScanner, ElementTooLarge
from mainspring.domain.errors import InvalidBatch, InvalidInput, MainspringError, PayloadTooLarge
from mainspring.domain.intake.decoding_errors import in_words
from mainspring.kernel.config import MAX_BATCH, MAX_JOB_BYTES
from mainspring.kernel.time_slices import TimeSlices
from mainspring.wire.jobs import JobRequest
from mainspring.wire.problems import FieldProblem

AT_ONCE = 1024 * 1024  # bytes that are decoded in one go: 60 ms at worst
_SMALL = 64 * 1024  # bytes: 15 ms at worst, whatever they are
_ELEMENTS_AT_ONCE = 20_000
_MAX_ERRORS = 100
_SHOWN = 1000  # bytes of a body whose beginning is not understood
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_BEFORE_ARRAY = re.compile(rb'[ \t\r\n]*+(?:\{[ \t\r\n]*+"jobs"[ \t\r\n]*+:[ \t\r\n]*+)?+')
_BEHIND_OBJECT = re.compile(rb"[ \t\r\n]*+\}[ \t\r\n]*+\Z")
_BEHIND_ARRAY = re.compile(rb"[ \t\r\n]*+\Z")


class Undecoded(msgspec.Struct, frozen=True):
    """A large body, as it came."""

    body: bytes


class JobBatch(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/jobs:batch`; a bare array of jobs is taken as well."""

    jobs: list[JobRequest]


class RawBatch(msgspec.Struct, forbid_unknown_fields=True):
    jobs: msgspec.Raw


_decode_raw_batch = msgspec.json.Decoder(RawBatch).decode
_decode_job = msgspec.json.Decoder(JobRequest).decode


def is_large(body: bytes) -> bool:
    """Whether to decode it in slices. Structs take far more memory than their JSON, so braces count too."""
    return len(body) > _SMALL and (len(body) > AT_ONCE or body.count(b"{") > _ELEMENTS_AT_ONCE)


async def read_batch(body: bytes) -> JobBatch:
    """All jobs, or an error that lists what is wrong by index."""
    slices = TimeSlices()
    begin = _BEFORE_ARRAY.match(body, 0, AT_ONCE)
    assert begin is not None  # it matches nothing at all, too
    scanner = ArrayScanner(body, begin.end(), MAX_JOB_BYTES, slices)
    elements: list[bytes] = []
    problems: list[FieldProblem] = []
    try:
        async for element in scanner.elements():
            elements.append(element)
            if len(elements) > MAX_BATCH:
                raise too_many_jobs()
    except ElementTooLarge as error:
        problems.append(_job_too_large().as_field_problem(error.index))
    except UNREADABLE as error:
        raise _not_a_batch(body, begin.end(), error) from None
    else:
        behind = _BEHIND_OBJECT if b"{" in begin[0] else _BEHIND_ARRAY
        rest = behind.match(body, scanner.end, scanner.end + AT_ONCE)
        if rest is None or rest.end() != len(body):
            raise InvalidInput(
                f"the body is not JSON: it does not end behind the jobs (byte {scanner.end})", code="invalid_json",
                field="$", expected="a JSON object",
            )  # fmt: skip
    return JobBatch(await _decode_each(elements, problems, slices))


async def _decode_each(elements: list[bytes], problems: list[FieldProblem], slices: TimeSlices) -> list[JobRequest]:
    jobs: list[JobRequest] = []
    found: list[FieldProblem] = []
    for index, element in enumerate(elements):
        try:
            jobs.append(_decode_job(element))
        except UNREADABLE as error:
            found.append(_job_problem(error, index))
            if len(found) >= _MAX_ERRORS:
                break
        if slices.over:
            await slices.pause()
    if found or problems:
        found = (found + problems)[:_MAX_ERRORS]
        raise InvalidBatch(found, more=len(found) >= _MAX_ERRORS)
    return jobs


def _not_a_batch(body: bytes, start: int, error: Exception) -> MainspringError:
    if body[start : start + 1] == b"[":
        return in_words(error, JobRequest)
    try:  # the decoder says what is wrong with the beginning
        _decode_raw_batch(body[:_SHOWN])
    except msgspec.ValidationError as early:
        return in_words(early, JobBatch)
    except UNREADABLE as early:
        if "truncated" not in str(early):
            return in_words(early, JobBatch)
    return InvalidInput("the jobs are not an array", field="jobs", expected="an array of jobs")


def _job_problem(error: Exception, index: int) -> FieldProblem:
    refusal = in_words(error, JobRequest)
    refusal.field = None if refusal.field == "$" else refusal.field
    return refusal.as_field_problem(index)


def too_many_jobs(count: int | None = None) -> InvalidInput:
    return InvalidInput(
        f"the batch has {'more than ' + str(MAX_BATCH) if count is None else count} jobs", code="batch_too_large",
        field="jobs", expected=f"at most {MAX_BATCH}",
    )  # fmt: skip


def _job_too_large() -> PayloadTooLarge:
    return PayloadTooLarge(
        f"the job has more than {MAX_JOB_BYTES} bytes", expected=f"at most {MAX_JOB_BYTES} bytes",
        hint="store it elsewhere and send a reference",
    )  # fmt: skip
