"""Applies job files: all of it in one transaction, or nothing. A plan is the same transaction, which is rolled back.

The operations on each kind are those that single requests use. They join the transaction (store/joined.py). What
follows the commit, such as signals, is kept until then.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec

from mainspring.domain.errors import (
    Conflict,
    InvalidBatch,
    InvalidInput,
    MainspringError,
    PayloadTooLarge,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    VersionMismatch,
)
from mainspring.domain.intake.decoding_errors import in_words
from mainspring.domain.texts import shown
from mainspring.kernel.config import LARGE_BYTES, MAX_JOB_BYTES
from mainspring.kernel.tenant_turns import NoTurn, Share, TenantTurns
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.operations.files.kinds import Done, FileEntry
from mainspring.operations.files.parts import FileServices, Parts
from mainspring.operations.files.registry import KINDS, kind_named
from mainspring.store import file_objects
from mainspring.store.deadlocks import despite_deadlocks
from mainspring.store.file_objects import FileObjectRow
from mainspring.wire.files import (
    FILE_KINDS,
    ExportAnswer,
    ExportRequest,
    FileChange,
    FileObject,
    FilesAnswer,
    FilesRequest,
)
from mainspring.wire.problems import FieldProblem
from mainspring.wire.workflows import WorkflowRequest

_MOST_ERRORS = 100
_LONGEST_ID = 200
_AT_ONCE = 2  # transactions of this server; each has one of the few connections for changes
_MOST_WAITING = 32  # of a tenant
_LONGEST_WAIT = 30.0
_TRIES = 3  # an object may change between a look at it and its lock
_NOT_OF_AN_OBJECT = (Unavailable, TooManyRequests, VersionMismatch, Unauthorized)


class _OnlyPlanned(Exception):
    """Ends the transaction of a plan."""


class FileApplier:
    def __init__(self, services: FileServices) -> None:
        self._services = services
        # Files of a tenant are applied one after the other. They wait here: in the transaction, with a connection for
        # changes each, they would hold up the changes of other tenants.
        self._turns = TenantTurns(Share(_AT_ONCE), Share(1), most_waiting=_MOST_WAITING, longest_wait=_LONGEST_WAIT)

    async def plan(self, caller: Caller, request: FilesRequest) -> FilesAnswer:
        """What `apply` would do. Nothing is changed."""
        return await self._run(caller, request, apply=False)

    async def apply(self, caller: Caller, request: FilesRequest) -> FilesAnswer:
        """Make the objects so. Raises InvalidBatch with all that is wrong, and then nothing is changed."""
        await self._services.quotas.admit_request(caller)
        return await self._run(caller, request, apply=True)

    async def export(self, caller: Caller, request: ExportRequest) -> ExportAnswer:
        """A page of what there is, as files say it."""
        kind = kind_named(request.kind)
        objects, following = await kind.export(self._services, caller, request.cursor, request.limit)
        if request.owner is not None:
            objects = [one for one in objects if one.owner == request.owner]
        return ExportAnswer(objects, following)

    async def _run(self, caller: Caller, request: FilesRequest, *, apply: bool) -> FilesAnswer:
        entries = await _entries(request.objects)
        problems, slices = _Problems(), TimeSlices()
        for entry in entries:
            with problems.of(entry.index):
                await kind_named(entry.kind).prepare(self._services, caller, entry)
            if slices.over:  # a single rule may take longer than a slice
                await slices.pause()
        problems.raise_if_any()
        transact = partial(self._transact, caller, request, entries, apply=apply)
        try:
            await self._turns.take(caller.tenant)
        except NoTurn:
            raise TooManyRequests(
                "too many requests of this tenant wait to apply or plan job files", hint="send them one after the other"
            ) from None
        try:
            return await _tried(transact)
        finally:
            self._turns.give_back(caller.tenant)

    async def _transact(
        self, caller: Caller, request: FilesRequest, entries: Sequence[FileEntry], *, apply: bool
    ) -> FilesAnswer:
        answer: FilesAnswer | None = None
        try:
            async with self._services.store.change() as connection:
                parts = Parts(self._services, caller, connection)
                await file_objects.take_turn(connection, caller.tenant)
                answer = await _change_all(parts, request, entries)
                if request.expected is not None and request.expected != answer.digest:
                    raise Conflict(
                        "the plan that was confirmed is not what would be done now", code="plan_changed",
                        field="expected", hint="look at the new plan and confirm it",
                    )  # fmt: skip
                if not apply:
                    raise _OnlyPlanned
        except _OnlyPlanned:
            assert answer is not None
            return answer
        await parts.committed()
        return msgspec.structs.replace(answer, applied=True)


async def _tried(transact: Callable[[], Awaitable[FilesAnswer]]) -> FilesAnswer:
    for _ in range(_TRIES - 1):
        try:
            return await despite_deadlocks(transact)
        except Conflict as error:
            if error.code != "changed_meanwhile":
                raise
        except VersionMismatch:
            pass
    return await despite_deadlocks(transact)


async def _change_all(parts: Parts, request: FilesRequest, entries: Sequence[FileEntry]) -> FilesAnswer:
    """Put what the files have, and remove what they no longer have."""
    problems, changes, warnings = _Problems(), [], []
    tenant, owner = parts.caller.tenant, request.owner
    had = {(row.kind, row.object_id): row for row in await file_objects.of_owner(parts.connection, tenant, owner)}
    for kind in KINDS:
        arranged = kind.arranged([one for one in entries if one.kind == kind.section])
        ids = [entry.id for entry in arranged]
        owned = await file_objects.of_kind(parts.connection, tenant, kind.section, ids) if ids else {}
        for entry in arranged:
            before = owned.get(entry.id)
            with problems.of(entry.index):
                _check_owner(entry, before, request)
                async with parts.connection.transaction():
                    done = await kind.put(parts, entry)
                    if not _as_noted(before, entry, done, owner):
                        await file_objects.put(
                            parts.connection, tenant, entry.kind, entry.id,
                            owner=owner, source=entry.source, version=done.version, generation=done.generation,
                            by=parts.caller.name,
                        )  # fmt: skip
                        if done.action != "create":
                            was = {"owned_by": None if before is None else before.owner}
                            now = {"owned_by": owner}
                            await record(parts.connection, parts.caller, kind.audited, entry.id, was, now)
                changes.append(_change(entry, done, before, owner))
                warnings += done.warnings
    problems.raise_if_any()
    named = {(entry.kind, entry.id) for entry in entries}
    gone = [row for key, row in had.items() if key not in named]
    left = [] if request.prune else [FileChange(row.kind, row.object_id, "remove") for row in gone]
    if request.prune:
        changes += await _remove(parts, gone)
    return FilesAnswer(owner, False, _digest(changes), changes, left, list(dict.fromkeys(warnings)))


async def _remove(parts: Parts, gone: Sequence[FileObjectRow]) -> list[FileChange]:
    """Remove what the owner had. What is gone already is forgotten."""
    changes: list[FileChange] = []
    for kind in reversed(KINDS):
        for row in gone:
            if row.kind != kind.section:
                continue
            done = await kind.remove(parts, row.object_id, row.generation)
            await file_objects.forget(parts.connection, row.tenant_id, row.kind, row.object_id, row.owner)
            if done is not None:
                changes.append(FileChange(row.kind, row.object_id, done.action, live_runs=done.live_runs))
    return changes


def _check_owner(entry: FileEntry, before: FileObjectRow | None, request: FilesRequest) -> None:
    if before is None or before.owner == request.owner or request.take_over:
        return
    where = f" ({before.source})" if before.source else ""
    raise Conflict(
        f"the {FILE_KINDS[entry.kind].noun} {entry.id!r} is owned by other files: {before.owner}{where}",
        code="owned_elsewhere", hint="remove it from one of both, or take it over with --take-over",
    )  # fmt: skip


def _as_noted(before: FileObjectRow | None, entry: FileEntry, done: Done, owner: str) -> bool:
    """Whether nothing about the owner has to be written."""
    if before is None:
        return False
    noted = (before.owner, before.source, before.version, before.generation)
    return noted == (owner, entry.source, done.version, done.generation)


def _change(entry: FileEntry, done: Done, before: FileObjectRow | None, owner: str) -> FileChange:
    previous = None if before is None or before.owner == owner else before.owner
    action = done.action
    if action == "unchanged" and (before is None or previous is not None):
        action = "adopt"
    return FileChange(entry.kind, entry.id, action, done.fields, entry.index, done.live_runs, previous)


def _digest(changes: Sequence[FileChange]) -> str:
    """Of what is done, whatever else there is in the files. Runs come and go: they are not part of it."""
    done = [
        msgspec.structs.replace(change, index=None, live_runs=[]) for change in changes if change.action != "unchanged"
    ]
    return hashlib.sha256(msgspec.json.encode(done, order="sorted")).hexdigest()


async def _entries(objects: Sequence[FileObject]) -> list[FileEntry]:
    """The objects with their bodies as structs. Raises InvalidBatch."""
    problems, slices = _Problems(), TimeSlices()
    entries: list[FileEntry] = []
    counts = Counter((one.kind, one.id) for one in objects)
    for index, one in enumerate(objects):
        with problems.of(index):
            kind_named(one.kind)
            if counts[one.kind, one.id] > 1:
                raise InvalidInput(f"{shown(one.id)} occurs twice", field="id", hint="remove one")
            if not one.id or len(one.id) > _LONGEST_ID:
                raise InvalidInput("an id has 1 to 200 characters", field="id")
            entries.append(FileEntry(index, one.kind, one.id, _body(one), one.source))
        if slices.over:
            await slices.pause()
    problems.raise_if_any()
    return entries


def _body(one: FileObject) -> object:
    """The fields of the object. A large workflow stays as it came: its steps are decoded in another process."""
    kind, size = FILE_KINDS[one.kind], len(memoryview(one.body))
    if size > MAX_JOB_BYTES and kind.body is not WorkflowRequest:
        raise PayloadTooLarge(f"the {kind.noun} has {size} bytes", expected=f"at most {MAX_JOB_BYTES} bytes")
    try:
        for name in msgspec.json.decode(one.body, type=dict[str, msgspec.Raw]):
            if name in kind.without:
                raise InvalidInput(f"{name} cannot be in a file", field=name, hint=kind.without[name])
        if size > LARGE_BYTES and kind.body is WorkflowRequest:
            return bytes(memoryview(one.body))
        return msgspec.json.decode(one.body, type=kind.body)
    except msgspec.DecodeError as error:
        raise in_words(error, kind.body) from None


class _Problems:
    """What is wrong with the objects. All of it is told together."""

    def __init__(self) -> None:
        self._found: list[FieldProblem] = []
        self._index = 0

    def of(self, index: int) -> _Problems:
        self._index = index
        return self

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> bool:
        if not isinstance(error, MainspringError) or isinstance(error, _NOT_OF_AN_OBJECT):
            return False
        if error.code == "changed_meanwhile":
            return False
        field = f"objects[{self._index}]" + (f".{error.field}" if error.field else "")
        self._found.append(FieldProblem(field, error.code, error.detail, error.hint or error.expected, self._index))
        if len(self._found) >= _MOST_ERRORS:
            self.raise_if_any()
        return True

    def raise_if_any(self) -> None:
        if self._found:
            raise InvalidBatch(self._found, more=len(self._found) >= _MOST_ERRORS)
