"""Messages about job files: what the files of an owner have, and what changes when they are applied.

FILE_KINDS says which sections a file may have. To add a kind: a row here, and a class in `operations/files/` that
`operations/files/registry.py` lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from mainspring.wire.calendars import CalendarRequest
from mainspring.wire.channels import CHANNEL_SECRETS, ChannelRequest
from mainspring.wire.formats import ChosenJobId
from mainspring.wire.gates import GateRequest
from mainspring.wire.jobs import JobRequest
from mainspring.wire.quotas import QuotasRequest
from mainspring.wire.rules import RuleRequest
from mainspring.wire.secrets import SecretRequest
from mainspring.wire.states import words
from mainspring.wire.workflows import WorkflowRequest

MOST_OBJECTS = 1000  # their transaction stays below a minute, also on a busy machine
MAX_FILE_BYTES = 4 * 1024 * 1024
ACTIONS = ("create", "change", "adopt", "remove", "unchanged")
ActionWord = Annotated[str, words("FileAction", *ACTIONS)]


@dataclass(frozen=True, slots=True)
class FileSection:
    """A section of a file: `jobs: {ID: BODY}`. without: fields of the body that a file does not have, with the
    reason. secrets: fields whose values a file does not have either: it says where they are, `{env: NAME}` or
    `{file: PATH}`, and the command line reads them."""

    section: str
    noun: str
    body: type[msgspec.Struct]
    without: dict[str, str]
    secrets: tuple[str, ...] = ()


_NAME = "the name of the entry is the id"
_ONCE = "a job of a file stays: submit one that runs once with `mainspring submit`"
_PAUSED = "a pause is not part of a file: use `mainspring queue pause`"
_OWNED = "the owner of the files has it"
FILE_KINDS = {
    kind.section: kind
    for kind in (
        FileSection("quotas", "quotas of tenant", QuotasRequest, {}),
        FileSection("secrets", "secret", SecretRequest, {}, ("value",)),
        FileSection("channels", "channel", ChannelRequest, {}, CHANNEL_SECRETS),
        FileSection("calendars", "calendar", CalendarRequest, {}),
        FileSection("limits", "limits of queue", GateRequest, {"paused": _PAUSED}),
        FileSection(
            "jobs", "job", JobRequest,
            {
                "job_id": _NAME, "idempotency_key": "the id is enough", "declared_by": _OWNED, "delay": _ONCE,
                "schedule_time": _ONCE, "unique": "it is about submissions",
            },
        ),
        FileSection(
            "workflows", "workflow", WorkflowRequest,
            {"workflow_id": _NAME, "idempotency_key": "the id is enough", "declared_by": _OWNED},
        ),
        FileSection("rules", "rule", RuleRequest, {}),
    )
}  # fmt: skip


class FileObject(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One entry of a file. kind: the section in which it is. id: its name there. body: its fields. source: the file and
    the line."""

    kind: str
    id: str
    body: msgspec.Raw
    source: Annotated[str, Meta(max_length=1000)] | None = None


class FilesRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /v1/files:plan` and `POST /v1/files:apply`.

    owner: who owns the objects. prune: remove what this owner had and the files no longer have. take_over: also change
    what other files own. expected: the `digest` of the plan that was confirmed; another plan is refused.
    """

    owner: ChosenJobId
    objects: Annotated[list[FileObject], Meta(max_length=MOST_OBJECTS)]
    prune: bool = False
    take_over: bool = False
    expected: str | None = None


class FieldChange(msgspec.Struct):
    """A field before and after, as the object shows it."""

    field: str
    before: Any
    after: Any


class FileChange(msgspec.Struct, omit_defaults=True):
    """What happens to an object. adopt: it is as the file says, and belongs to the owner from now on. index: its place
    in the request. live_runs: the runs that a removal cancels, 100 at most. previous_owner: who owned it before."""

    kind: str
    id: str
    action: ActionWord
    fields: list[FieldChange] = []
    index: int | None = None
    live_runs: list[str] = []
    previous_owner: str | None = None


class FilesAnswer(msgspec.Struct):
    """The response to a plan or an application. changes: of all objects, in the order in which they are made. left:
    what the owner has and the files do not, if it is not pruned."""

    owner: str
    applied: bool
    digest: str
    changes: list[FileChange]
    left: list[FileChange] = []
    warnings: list[str] = []


class ExportRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /v1/files:export`. owner: only what these files own. cursor: where the next page begins."""

    kind: str
    owner: ChosenJobId | None = None
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 500


class ExportedObject(msgspec.Struct, omit_defaults=True):
    """An object as a file says it. declared_by: the application whose code declares it."""

    kind: str
    id: str
    body: dict[str, Any]
    owner: str | None = None
    declared_by: str | None = None


class ExportAnswer(msgspec.Struct):
    """A page of objects of one kind."""

    objects: list[ExportedObject]
    next: str | None = None
