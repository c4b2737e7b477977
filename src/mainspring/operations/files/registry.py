"""The kinds of object that a job file may have, in the order in which they are put. They are removed in the opposite
order: what others name is put first and removed last."""

from __future__ import annotations

from mainspring.domain.errors import InvalidInput
from mainspring.domain.texts import meant, shown
from mainspring.operations.files.calendars import CalendarsOfFiles
from mainspring.operations.files.channels import ChannelsOfFiles
from mainspring.operations.files.jobs import JobsOfFiles
from mainspring.operations.files.kinds import FileKind
from mainspring.operations.files.limits import LimitsOfFiles
from mainspring.operations.files.quotas import QuotasOfFiles
from mainspring.operations.files.rules import RulesOfFiles
from mainspring.operations.files.secrets import SecretsOfFiles
from mainspring.operations.files.workflows import WorkflowsOfFiles
from mainspring.wire.files import FILE_KINDS

KINDS: tuple[FileKind, ...] = (
    QuotasOfFiles(),
    SecretsOfFiles(),
    ChannelsOfFiles(),
    CalendarsOfFiles(),
    LimitsOfFiles(),
    JobsOfFiles(),
    WorkflowsOfFiles(),
    RulesOfFiles(),
)
_BY_SECTION = {kind.section: kind for kind in KINDS}


def kind_named(section: str, field: str = "kind") -> FileKind:
    found = _BY_SECTION.get(section)
    if found is None:
        known = ", ".join(FILE_KINDS)
        raise InvalidInput(
            f"{shown(section)} is not a kind of object in a file", field=field,
            expected=f"one of {known}", hint=meant(section, FILE_KINDS, f"it has {known}"),
        )  # fmt: skip
    return found
