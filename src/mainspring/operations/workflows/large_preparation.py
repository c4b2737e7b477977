"""Prepares large workflows in child processes: their text is not even decoded here.

A definition of 12 MB with 1.5 million dependencies takes 1.3 s of CPU and 200 MB. In the server it held up the event
loop for all requests, and did not give its memory back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET

from mainspring.domain import errors
from mainspring.domain.errors import MainspringError, PayloadTooLarge, TooManyRequests
from mainspring.domain.intake.declaration import TaskDeclaration
from mainspring.domain.intake.decoding_errors import in_words
from mainspring.domain.intake.workflows import WorkflowSource
from mainspring.kernel.child_computation import TooMuchWork, compute
from mainspring.kernel.ids import TenantId
from mainspring.kernel.tenant_turns import NoTurn, Share, TenantTurns
from mainspring.operations.signatures.signature_compiler import declaration_in
from mainspring.operations.workflows.preparation import Checked, Version, check, digest_of, version_of
from mainspring.wire.states import PriorityIn
from mainspring.wire.workflows import StepIn, WorkflowPatch, WorkflowRequest

REQUEST, PATCH, STEPS = "request", "patch", "steps"  # what a text is
_MOST_OTHER_BYTES = 1024 * 1024  # of all fields but the steps
_HERE = f"{__name__}:prepare"
_LENGTH = 8  # bytes that say how long the order is
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_KINDS: dict[str, type] = {REQUEST: WorkflowRequest, PATCH: WorkflowPatch, STEPS: list[StepIn]}
_encode = msgspec.json.Encoder().encode


class Order(msgspec.Struct, frozen=True):
    """What is to be done with a text. kind: REQUEST, PATCH or STEPS. stores: whether it is to be stored, or only
    checked. declarations: those of tasks, as texts. parameters, queue, priority: those that the workflow has, for what
    a patch leaves as it is, and for steps."""

    kind: str
    now: datetime
    stores: bool
    declarations: dict[str, str]
    parameters: list[str] = []
    queue: str | None = None
    priority: PriorityIn | None = None


class PreparationProblem(msgspec.Struct, frozen=True):
    """A MainspringError on its way to another process."""

    kind: str
    detail: str
    code: str
    field: str | None
    expected: str | None
    hint: str | None

    @classmethod
    def of(cls, error: MainspringError) -> PreparationProblem:
        return cls(type(error).__name__, error.detail, error.code, error.field, error.expected, error.hint)

    def error(self) -> MainspringError:
        kind: type[MainspringError] = getattr(errors, self.kind)
        return kind(self.detail, code=self.code, field=self.field, expected=self.expected, hint=self.hint)


class Prepared(msgspec.Struct, frozen=True):
    """What was found out about a text. rest: the request or patch without its steps. has_steps: whether a patch has
    some. check or version: as the order says, unless there is a problem."""

    rest: bytes = b""
    has_steps: bool = True
    check: Checked | None = None
    version: Version | None = None
    digest: bytes | None = None
    problem: PreparationProblem | None = None


class LargePreparation:
    """The child processes of a server: two at a time, one for each tenant."""

    def __init__(self) -> None:
        self._turns = TenantTurns(Share(2), Share(1), most_waiting=32, longest_wait=30.0)

    async def prepare(self, tenant: TenantId, order: Order, text: bytes) -> Prepared:
        """Raises TooManyRequests, and PayloadTooLarge if it takes too much time or memory."""
        head = _encode(order)
        try:
            async with self._turns.turn(tenant):
                found = await compute(_HERE, [len(head).to_bytes(_LENGTH), head, text])
        except NoTurn:
            raise TooManyRequests(
                "too many large workflows of this tenant are being checked", hint="send one after the other"
            ) from None
        except TooMuchWork as error:
            raise PayloadTooLarge(
                f"the workflow cannot be checked: {error}", field="steps",
                hint="let a step in between wait for many others, or make several workflows",
            ) from None  # fmt: skip
        return msgspec.msgpack.decode(found, type=Prepared)


def prepare(data: bytes) -> bytes:
    """What the child process does, with what `LargePreparation` sends."""
    end = _LENGTH + int.from_bytes(data[:_LENGTH])
    order = msgspec.json.decode(memoryview(data)[_LENGTH:end], type=Order)
    return msgspec.msgpack.encode(_prepared(order, memoryview(data)[end:]))


def _prepared(order: Order, text: memoryview) -> Prepared:
    kind = _KINDS[order.kind]
    try:
        given: Any = msgspec.json.decode(text, type=kind)
    except _UNREADABLE as error:
        struct = kind if issubclass(kind, msgspec.Struct) else StepIn
        return Prepared(problem=PreparationProblem.of(in_words(error, struct)))
    rest = b"" if order.kind == STEPS else _without_steps(given)
    if len(rest) > _MOST_OTHER_BYTES:
        return Prepared(problem=PreparationProblem.of(_too_much_else(len(rest))))
    source, parameters = _source(given, order)
    if source is None:
        return Prepared(rest, has_steps=False)
    known = _Declarations(order.declarations)
    try:
        if not order.stores:
            return Prepared(rest, check=asyncio.run(check(source, parameters, order.now, known)))
        version = asyncio.run(version_of(source, parameters, order.now, known))
    except MainspringError as error:
        return Prepared(rest, problem=PreparationProblem.of(error))
    has_key = isinstance(given, WorkflowRequest) and given.idempotency_key is not None
    return Prepared(rest, version=version, digest=digest_of(given) if has_key else None)


def _source(
    given: WorkflowRequest | WorkflowPatch | list[StepIn], order: Order
) -> tuple[WorkflowSource | None, Collection[str]]:
    """What a definition is made from, and the names of its parameters. None if a patch leaves the steps as they are."""
    if isinstance(given, WorkflowRequest):
        return WorkflowSource(given.steps, given.queue, given.priority), given.parameters or {}
    if isinstance(given, list):
        return WorkflowSource(given, order.queue, order.priority), order.parameters
    if given.steps is UNSET:
        return None, ()
    queue = order.queue if given.queue is UNSET else given.queue
    priority = order.priority if given.priority is UNSET else given.priority
    parameters = order.parameters if given.parameters is UNSET else given.parameters or {}
    return WorkflowSource(given.steps, queue, priority), parameters


def _without_steps(given: WorkflowRequest | WorkflowPatch) -> bytes:
    return _encode(msgspec.structs.replace(given, steps=[] if isinstance(given, WorkflowRequest) else UNSET))


def _too_much_else(size: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"the fields beside the steps have {size} bytes", field="$", expected=f"at most {_MOST_OTHER_BYTES} bytes"
    )


class _Declarations(Mapping[str, TaskDeclaration]):
    """Declarations that are compiled when they are needed."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = texts
        self._compiled: dict[str, TaskDeclaration] = {}

    def __getitem__(self, task: str) -> TaskDeclaration:
        if task not in self._compiled:
            self._compiled[task] = declaration_in(task, self._texts[task]) or TaskDeclaration()
        return self._compiled[task]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)
