"""The secrets that a job names: in its variables, in its call, and in `secrets` of a Python task."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from mainspring.domain.errors import InvalidInput, NotFound
from mainspring.domain.intake.kind_checks import KINDS_BY_TASK, checks_of, stored_call
from mainspring.domain.job import JobDefinition
from mainspring.domain.texts import meant, shown
from mainspring.wire.execution import RunSetup
from mainspring.wire.secrets import (
    LONGEST_VALUE,
    MOST_IN_A_JOB,
    REFERENCE,
    SHORTEST_VALUE,
    SecretRef,
    references_in,
)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\Z")
_WRITTEN = f'"{REFERENCE}"'


class SecretScope(msgspec.Struct, frozen=True):
    """Which jobs may name a secret. Empty: all."""

    queues: frozenset[str] = frozenset()
    tasks: frozenset[str] = frozenset()

    def refusal(self, name: str, queue: str, task: str) -> str | None:
        """Why a job of this queue and task may not have the secret."""
        if self.queues and queue not in self.queues:
            return f"the secret {name!r} is not for the queue {queue!r}"
        if self.tasks and task not in self.tasks:
            return f"the secret {name!r} is not for the task {task!r}"
        return None


def named_secrets(task: str, setup: RunSetup | None) -> dict[str, str]:
    """The names of the secrets, each with the field that names it. Only what the definition says counts: what a payload
    says can come from another run."""
    if setup is None:
        return {}
    found: dict[str, str] = {}
    if setup.env is not None:
        for variable, value in setup.env.items():
            if isinstance(value, SecretRef):
                found.setdefault(value.name, f"env.{variable}")
    for name in setup.secrets or ():
        found.setdefault(name, "secrets")
    call = stored_call(task, None, setup)
    if call is not None and call[1] is not None:
        for field, name in checks_of(call[0]).secrets_in(call[1]):
            found.setdefault(name, field)
    return found


def idle_references(definitions: Iterable[JobDefinition]) -> list[str]:
    """A warning if a payload of a Python task has a reference: the task gets it as it is written."""
    for one in definitions:
        if one.payload is None or _WRITTEN not in one.payload or one.task in KINDS_BY_TASK:
            continue
        try:
            place = next(references_in(msgspec.json.decode(one.payload), "payload"), None)
        except (msgspec.DecodeError, RecursionError):
            continue
        if place is not None:
            return [
                f'{place[0]}: {{"{REFERENCE}": ...}} stands for nothing in a payload, and the task gets it as it is; '
                "name the secret in secrets of the task or the job, and read it with ctx.secret(NAME)"
            ]
    return []


def check_named(
    named: Mapping[str, str],
    known: Mapping[str, SecretScope],
    queue: str,
    task: str,
    *,
    all_names: list[str] | None = None,
) -> None:
    """Raise InvalidInput, with the field, for a secret that does not exist or is not for this job."""
    if len(named) > MOST_IN_A_JOB:
        raise InvalidInput(
            f"the job names {len(named)} secrets", code="too_many_secrets", field=next(iter(named.values())),
            expected=f"at most {MOST_IN_A_JOB}",
        )  # fmt: skip
    for name, field in named.items():
        scope = known.get(name)
        if scope is None:
            raise InvalidInput(
                f"there is no secret {shown(name)}", code="unknown_secret", field=field,
                hint=meant(name, all_names or [], "store it first: mainspring secret set NAME"),
            )  # fmt: skip
        if (refusal := scope.refusal(name, queue, task)) is not None:
            raise InvalidInput(
                refusal, code="secret_not_allowed", field=field,
                hint="use another queue, or let an admin add it to the queues and tasks of the secret",
            )  # fmt: skip


def check_secret_name(name: str) -> None:
    if not _NAME.match(name):
        raise InvalidInput(
            f"{shown(name)} is not the name of a secret", field="name",
            expected="1 to 200 letters, digits, and . _ -, beginning with a letter or digit",
        )  # fmt: skip


def check_secret_value(value: str) -> None:
    """The message never has the value."""
    try:
        size = len(value.strip().encode())
    except UnicodeEncodeError:
        raise InvalidInput("the value has half a surrogate pair", field="value", expected="text") from None
    if not SHORTEST_VALUE <= size <= LONGEST_VALUE:
        raise InvalidInput(
            f"the value has {size} bytes", code="invalid_secret", field="value",
            expected=f"{SHORTEST_VALUE} to {LONGEST_VALUE} bytes",
            hint="a shorter one could not be hidden in output without hiding other words" if size else None,
        )  # fmt: skip
    if "\0" in value:
        raise InvalidInput("the value contains the character NUL", field="value", expected="text")
    if len(set(value.strip())) < 2:
        raise InvalidInput(
            "the value is one character again and again", code="invalid_secret", field="value",
            expected="a value that nobody guesses",
        )  # fmt: skip


def no_secret(name: str) -> NotFound:
    return NotFound(f"there is no secret {shown(name)}", field="name", hint="see GET /v1/secrets")
