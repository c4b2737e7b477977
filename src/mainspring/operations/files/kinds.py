"""What a kind of object in a job file can do. Each kind is one module, which registry.py lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from mainspring.domain.errors import Conflict
from mainspring.operations.access.caller import Caller
from mainspring.operations.files.parts import FileServices, Parts
from mainspring.wire.files import ExportedObject, FieldChange

HIDDEN, HIDDEN_OTHER = "(hidden)", "(hidden, another value)"  # values of secrets in plans


class FileEntry(msgspec.Struct):
    """An object that a file has. index: its place in the request. body: bytes if it is a large workflow. wanted: what
    the kind has made of the body before the transaction."""

    index: int
    kind: str
    id: str
    body: Any
    source: str | None
    wanted: Any = None


class Done(msgspec.Struct):
    """What was done to an object: create, change, unchanged or remove. version: that of the object now."""

    action: str
    version: int
    fields: list[FieldChange] = []
    live_runs: list[str] = []
    warnings: list[str] = []
    generation: int = 1


class FileKind(Protocol):
    """audited: the kind of the object in entries of the audit."""

    section: str
    audited: str

    def arranged(self, entries: Sequence[FileEntry]) -> list[FileEntry]:
        """The entries in the order in which they are put: what others name comes first."""

    async def prepare(self, services: FileServices, caller: Caller, entry: FileEntry) -> None:
        """Check the body as far as it goes without a transaction."""

    async def put(self, parts: Parts, entry: FileEntry) -> Done:
        """Create the object, or change what differs. Nothing is written for one that does not differ."""

    async def remove(self, parts: Parts, object_id: str, generation: int) -> Done | None:
        """Remove the object. None if there is none, or if it is another one by now."""

    async def export(
        self, services: FileServices, caller: Caller, after: str | None, limit: int
    ) -> tuple[list[ExportedObject], str | None]:
        """A page of objects, and where the next one begins."""


def differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[FieldChange]:
    """The fields that differ between two objects as a file says them."""
    names = dict.fromkeys([*before, *after])
    return [
        FieldChange(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)
    ]


def declared_elsewhere(noun: str, object_id: str, application: str) -> Conflict:
    return Conflict(
        f"the {noun} {object_id!r} is declared by the code of the application {application!r}",
        code="declared_in_code", hint="remove it from the file or from the code",
    )  # fmt: skip
