"""Schedules above functions: checked when the module is imported. An error names the line and the function.

@app.cron("0 9 * * MON-FRI", timezone="Europe/Berlin")
@app.task
def report() -> None: ...
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from mainspring.domain.errors import InvalidInput, MainspringError
from mainspring.sdk.client.encoding import encode
from mainspring.sdk.client.job_fields import JobFields, JobOptions, job_request
from mainspring.sdk.tasks.task import Submission, Task
from mainspring.wire.formats import ChosenJobId
from mainspring.wire.jobs import JobRequest

_SCRIPT = "__main__"


@dataclass(frozen=True, slots=True)
class AppSchedule:
    """A recurring job of the application with the id `job_id`."""

    job_id: str
    task: Task[Any, Any]
    options: JobOptions
    payload: Mapping[str, Any] = field(default_factory=dict)

    def fields(self) -> JobFields:
        return Submission(self.task, self.options).fields(**self.payload)

    def declared_by(self, application: str) -> JobFields:
        """The fields of the job that belongs to the application."""
        return {**self.fields(), "declared_by": application}

    def check(self, decorator: str) -> None:
        """Raise ValueError that names the decorator, the function and what is wrong, unless a server would accept the
        schedule. `decorator` is the line as it stands in the code: `@app.cron('61 * * * *')`."""
        from mainspring.domain.intake.request import define  # takes 10 ms to import

        where = f"{decorator} over {full_name(self.task.function)}"
        try:
            msgspec.convert(self.job_id, ChosenJobId)
        except msgspec.ValidationError:
            raise ValueError(
                f"{where}: {self.job_id!r} is not a valid job id (letters, digits, '.', '_', '-'). "
                "Give the schedule a job_id='...'."
            ) from None
        try:
            request = msgspec.json.decode(encode(job_request(self.fields())), type=JobRequest)
            schedule = define(request, datetime.now(UTC)).schedule
            if not schedule.recurring and schedule.event is None:
                raise InvalidInput(
                    "it does not say when to run", expected='a cron expression such as "0 9 * * MON-FRI"'
                )
        except MainspringError as error:
            if error.field == "schedule.end" and error.code in ("time_passed", "never_fires"):
                return  # the schedule was right once; the application still starts when it has ended
            if error.field is not None:
                error.field = error.field.removeprefix("schedule.")
            raise ValueError(f"{where}: {error.in_sentences()}") from None
        except msgspec.ValidationError as error:
            from mainspring.domain.intake.decoding_errors import in_words

            raise ValueError(f"{where}: {in_words(error, JobRequest).in_sentences()}") from None


def schedule_id(task: str, payload: Mapping[str, Any]) -> str:
    """The id of a schedule that names none: the name of the task, and the values of its payload."""
    parts = [str(value) if isinstance(value, str | int | float) else _short_digest(value) for value in payload.values()]
    return ".".join([task, *(re.sub(r"[^A-Za-z0-9._-]+", "-", part) for part in parts)])[:200]


def _short_digest(value: object) -> str:
    from hashlib import sha256  # loads OpenSSL: 3 ms

    return sha256(encode(value)).hexdigest()[:8]


def as_written(decorator: str, when: object, options: Mapping[str, Any]) -> str:
    """What a decorator says about the time: `@app.cron('0 9 * * *', timezone='Europe/Berlin')`. Other options may be
    secret (`env`)."""
    named = ("if_", "batch", "debounce", "timezone", "dst", "exdates", "jitter", "start", "end", "max_runs")
    rest = "".join(f", {name}={options[name]!r}" for name in named if options.get(name) is not None)
    return f"@app.{decorator}({when!r}{rest})"


def full_name(function: Callable[..., Any]) -> str:
    """The module and the qualified name of a function."""
    name = getattr(function, "__qualname__", None) or repr(function)
    return f"{getattr(function, '__module__', None) or '?'}.{name}"


def check_application_name(name: object) -> str:
    """`name`, if it can be the name of an application."""
    if isinstance(name, str) and "://" in name:
        raise ValueError(f"{name!r} is an address. Write Mainspring(url=...); the first argument is the name.")
    try:
        return msgspec.convert(name, ChosenJobId)
    except msgspec.ValidationError:
        raise ValueError(
            f"{name!r} is not the name of an application: at most 200 letters, digits, '.', '_' and '-'."
        ) from None


def default_application_name(namespace: Mapping[str, Any]) -> str:
    """The name of the module with these globals. The name of a script is that of its file, or of its package if it was
    started with `python -m`."""
    name = str(namespace.get("__name__") or _SCRIPT)
    if name == _SCRIPT:
        spec, file = namespace.get("__spec__"), namespace.get("__file__")
        if spec is not None:
            name = spec.name.removesuffix(f".{_SCRIPT}")
        elif file:
            name = Path(file).stem
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)[:200]


def source_of(namespace: Mapping[str, Any]) -> str:
    """A digest of the host and the file of the module with these globals."""
    from hashlib import sha256

    file = Path(namespace.get("__file__") or "").resolve()
    return sha256(f"{os.uname().nodename}\0{file}".encode(errors="replace")).hexdigest()[:32]


def creator_of(app: object) -> Mapping[str, Any]:
    """The globals of the module that creates `app`: the module of the first caller that is not a constructor of it."""
    frame = sys._getframe(1)
    while frame.f_back is not None and any(value is app for value in frame.f_locals.values()):
        frame = frame.f_back
    return frame.f_globals
