"""What intake needs of a kind of task: how its call is read, kept, changed and shown. Each kind has a `CHECKS`.

`CallChecks` is for kinds whose call is an object: their request is a struct, given in the field of the kind or as the
payload of the task. A kind of another package derives from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, Protocol

import msgspec

from mainspring.domain.errors import InvalidInput, PayloadTooLarge
from mainspring.domain.workflows.references import ParsedReference, collect, may_refer, without_references
from mainspring.kinds.registry import TaskKind, task_kinds
from mainspring.wire.execution import ResourceLimits, RunSetup

_NOT_OF_A_PROCESS = ("env", "secrets", "sandbox", "run_as", "kill_grace")
_LIMITS_OF_A_PROCESS = ("memory", "cpu", "processes", "files", "disk")
_NUL_IN_JSON = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")  # after an even number of backslashes


class KindChecks(Protocol):
    """The rules of one kind of task. Each method raises InvalidInput."""

    kind: TaskKind
    payload_is_call: bool
    """The payload of the task describes the call. Then it is not given beside the field."""
    takes_callback: bool
    """Whether what it calls may answer later."""
    other_task: str
    """What is wrong if the field is given with another task."""

    def read(self, given: Any, payload: str | None) -> Any:
        """The call as it is stored, from the field of the request."""

    def read_payload(self, payload: str | None) -> Any:
        """The call as it is stored, from the payload of the task."""

    def check_setup(self, setup: RunSetup) -> None:
        """Refuse fields that have no effect on this kind."""

    def is_in_payload(self, call: Any, payload: str | None) -> bool:
        """Whether the stored call came with the payload. Then it changes with the payload."""

    def stand_in(self, call: Any, payload: str) -> str | None:
        """A payload in the place of one that was not kept, where `payload` is the new one. It says whether the call was
        in the payload."""

    def in_step(self, given: Any) -> tuple[str | None, list[ParsedReference], Any]:
        """For a step whose call has references, return the call as a payload, its references, and the call as far as it
        is known. If it has none, return (None, [], given). A worker prefers a payload to the stored call."""

    def check_references(self, call: Any, parents: Sequence[str]) -> None:
        """Refuse references to results of other jobs where they are not replaced."""

    def secrets_in(self, call: Any) -> Iterable[tuple[str, str]]:
        """The secrets that a stored call names: the field, and the name of the secret."""


class CallChecks:
    """The rules of a kind whose call is an object. `check` is its own."""

    payload_is_call = True
    takes_callback = False
    a_task = ""
    noun = "a call"
    example = "{}"

    def __init__(self, kind: TaskKind) -> None:
        self.kind = kind
        self.a_task = self.a_task or f"a {kind.name} task"
        self.other_task = f"{kind.field} works only with the task {kind.name}"
        self._types = kind.part("call")
        self._decode = msgspec.json.Decoder(self._types.CALL_IN).decode

    def check(self, given: Any, field: str) -> Any:
        """The call as it is stored. `field` is where it is given."""
        raise NotImplementedError

    def read(self, given: Any, payload: str | None) -> Any:
        field = self.kind.field
        if payload is not None:
            raise InvalidInput(f"{field} and payload cannot be combined", field="payload", hint=self.hint_for_payload)
        return self.check(given, field)

    @property
    def hint_for_payload(self) -> str:
        return f"put all of it in {self.kind.field}"

    def read_payload(self, payload: str | None) -> Any:
        call = self.call_in(payload)
        if call is None:
            field = self.kind.field
            raise InvalidInput(f"{self.a_task} needs {self.noun}", field=field, expected=f'"{field}": {self.shape}')
        return call

    def call_in(self, payload: str | None) -> Any:
        """The call in the payload of a task. None if there is no payload."""
        if payload is None:
            return None
        try:
            return self.check(self._decode(payload), "payload")
        except (msgspec.DecodeError, RecursionError) as error:
            raise self.not_a_call(error) from None

    def not_a_call(self, error: Exception) -> InvalidInput:
        return InvalidInput(
            f"the payload is not {self.noun}: {error}", field="payload", expected=f"such as {self.example}"
        )

    def check_setup(self, setup: RunSetup) -> None:
        """Refuse what only processes have. A kind that starts some overrides this."""
        limits = setup.limits or ResourceLimits()
        given = [field for field in _NOT_OF_A_PROCESS if getattr(setup, field) is not None]
        given += [f"limits.{name}" for name in _LIMITS_OF_A_PROCESS if getattr(limits, name) is not None]
        for field in given:
            raise InvalidInput(f"{field} has no effect on {self.a_task}", field=field, hint="leave it out")

    def is_in_payload(self, call: Any, payload: str | None) -> bool:
        return payload is not None

    def stand_in(self, call: Any, payload: str) -> str | None:
        return "{}"

    def in_step(self, given: Any) -> tuple[str | None, list[ParsedReference], Any]:
        try:
            text = msgspec.json.encode(given).decode()
        except RecursionError:
            raise self.too_deep() from None
        if not may_refer(text):
            return None, [], given
        value = msgspec.json.decode(text)
        references = collect(value, self.kind.field, secrets=True)
        self.check_places(given)
        if (known := without_references(value)) == value:
            return None, [], given
        return text, references, self.known_part(given, known)

    def too_deep(self) -> InvalidInput:
        return InvalidInput(f"{self.kind.field} is nested too deeply", field=self.kind.field)

    def check_places(self, given: Any) -> None:
        """Refuse references in parts of the call that have none."""

    def known_part(self, given: Any, value: Any) -> Any:
        """The call with null in the place of references. `value`: the same as plain JSON."""
        try:
            return msgspec.convert(value, self._types.CALL_IN)
        except msgspec.ValidationError as error:
            raise InvalidInput(
                f"a reference cannot stand there: {error}", code="invalid_reference", field=self.kind.field
            ) from None

    def secrets_in(self, call: Any) -> Iterable[tuple[str, str]]:
        """None, unless the executor of the kind puts them in."""
        return ()

    def check_references(self, call: Any, parents: Sequence[str]) -> None:
        self.refuse_references(msgspec.to_builtins(call), self.kind.field, parents)

    def refuse_references(self, value: Any, where: str, parents: Sequence[str]) -> None:
        field, name = self.kind.field, self.kind.name
        try:
            found = collect(value, where)
        except InvalidInput:  # an object with a $ that means nothing to us
            return
        for reference in found:
            if reference.kind == "$from" and reference.of in parents:
                raise InvalidInput(
                    f"results are not put into the {field} of a job", code="invalid_reference", field=reference.where,
                    hint=f'give the call as payload: {{"task": "{name}", "payload": {self.shape}}}',
                )  # fmt: skip

    @property
    def shape(self) -> str:
        return self.example


def check_value(value: object, field: str, most: int) -> None:
    """Check a value that is stored in the job's spec: its size, and that it does not contain NUL. PostgreSQL cannot
    read such JSON: one such job made every query that reads specs fail, and could not be fired."""
    text = value.encode() if isinstance(value, str) else msgspec.json.encode(value)
    if len(text) > most:
        raise PayloadTooLarge(
            f"{field} has {len(text)} bytes", field=field, expected=f"at most {most} bytes",
            hint="store it elsewhere and send a reference",
        )  # fmt: skip
    if b"\0" in text or (not isinstance(value, str) and _NUL_IN_JSON.search(text)):
        raise InvalidInput(f"{field} contains the character NUL", field=field, expected="plain text")


def unknown_kind(name: str, package: str, field: str) -> InvalidInput:
    return InvalidInput(
        f"this server does not have the kind of task {name!r}", code="unknown_kind", field=field,
        hint=f"install the package {package} at the servers, as at the workers that offer it",
    )  # fmt: skip


def checks_of(kind: TaskKind) -> KindChecks:
    checks = _checks.get(kind.name)
    if checks is None:
        checks = _checks[kind.name] = kind.part("checks").CHECKS
    return checks


def stored_call(task: str, command: Any, setup: RunSetup | None) -> tuple[TaskKind, Any] | None:
    """The kind of a task, and its call as it is stored. None if it is a task of an application."""
    kind = KINDS_BY_TASK.get(task)
    if kind is None:
        return None
    if not kind.in_setup:
        return kind, command
    return kind, None if setup is None else getattr(setup, kind.field)


def without_call(setup: RunSetup | None) -> RunSetup:
    return msgspec.structs.replace(setup or RunSetup(), **_NO_CALLS)


def calls_in(setup: RunSetup) -> dict[str, Any]:
    """The call of a run by its field, and None for the other kinds."""
    return {name: getattr(setup, name) for name in SETUP_FIELDS}


KINDS_BY_TASK = {kind.name: kind for kind in task_kinds()}
_checks: dict[str, KindChecks] = {}
SETUP_FIELDS = tuple(kind.field for kind in task_kinds() if kind.in_setup)
_NO_CALLS: dict[str, Any] = dict.fromkeys(SETUP_FIELDS)
KIND_FIELDS = tuple(kind.field for kind in task_kinds())
given_calls = attrgetter(*KIND_FIELDS)
"""The calls in a request, a patch or a step, in the order of the kinds."""
NO_CALLS = (None,) * len(KIND_FIELDS)
