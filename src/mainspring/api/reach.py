"""How an operation treats a narrowed token (domain/narrowing.py). Its handler says so: `reach=Reach.OBJECT`. A handler
that says nothing refuses such tokens. `shows_payloads=True`: a token that does not see payloads is refused.

Objects that the path names (a job, a run, a dead letter) are checked before the operation begins, whatever the handler
says.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from mainspring.domain.errors import Forbidden
from mainspring.domain.narrowing import Narrowing
from mainspring.operations.read.queues import no_queue


class Reach(Enum):
    NONE = "it shows and changes nothing of jobs and runs"
    OBJECT = "the path names the object, which is checked"
    FILTERED = "the operation leaves out what lies outside, or refuses to create it"
    QUEUE = "the path names a queue, or it lists queues: for tokens that are narrowed by queues alone"
    REFUSED = "it cannot leave out what lies outside"


def reaches(handler: Any, narrowing: Narrowing) -> bool:
    """Whether a token that is narrowed like this may call the handler."""
    if handler.shows_payloads and not narrowing.payloads:
        return False
    if not narrowing.of_objects:
        return True
    reach: Reach = handler.reach
    return narrowing.of_queues_alone if reach is Reach.QUEUE else reach is not Reach.REFUSED


def check_reach(handler: Any, narrowing: Narrowing, named: dict[str, Any], query: bytes) -> None:
    """Raise Forbidden if the operation cannot leave out what lies outside, and NotFound if the path names a queue that
    the token does not reach."""
    reach: Reach = handler.reach
    if handler.shows_payloads and not narrowing.payloads:
        raise Forbidden(
            "this token does not see payloads and output, and exports no files", code="narrowed_token",
            field="Authorization", hint="use a token that was made without payloads: false",
        )  # fmt: skip
    if not reaches(handler, narrowing):
        why = (
            "is for tokens that are narrowed by queues alone" if reach is Reach.QUEUE else "shows more than this token"
        )
        raise Forbidden(
            f"the token is narrowed, and {handler.operation} {why}", code="narrowed_token", field="Authorization",
            hint="use a token that is not narrowed, or one of the lists of jobs and runs",
        )  # fmt: skip
    if not narrowing.of_objects:
        return
    if reach is Reach.QUEUE and (name := named.get("name")) is not None and not narrowing.has_queue(name):
        raise no_queue(name)
    if b"generation=" in query:
        raise Forbidden(
            "the token is narrowed, and sees the newest generation of a job alone", code="narrowed_token",
            field="generation", hint="leave out generation, or use a token that is not narrowed",
        )  # fmt: skip
