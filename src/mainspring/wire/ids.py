"""Messages to clients about ids that were found by a part of them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from mainspring.wire.states import words

IdKind = Annotated[str, words("IdKind", "run", "job", "dead_letter", "worker")]
SHORTEST_PART, LONGEST_PART = 4, 1000  # characters
IdPart = Annotated[str, Meta(extra_json_schema={"minLength": SHORTEST_PART, "maxLength": LONGEST_PART})]


class IdMatch(msgspec.Struct):
    """An id. kind: run, job, dead_letter or worker. name: that of the job, or its task, or that of the worker."""

    kind: IdKind
    id: str
    name: str | None = None


class IdList(msgspec.Struct):
    """The ids that begin or end with a text: 20 at most, and whether there are more. complete: every id was searched,
    not only those of the newest 100,000 rows of each table."""

    ids: list[IdMatch]
    complete: bool = True
    more: bool = False
