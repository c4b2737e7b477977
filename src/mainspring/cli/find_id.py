"""Ids on the command line: whole, or their beginning or end if no other id has it.

An exact id always counts first. Only if there is none, the server is asked for ids that begin or end with the text. A
text that fits several ids is refused, so that nothing happens to the wrong one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from mainspring.cli import completing
from mainspring.cli.short_ids import SHORT

if TYPE_CHECKING:
    from mainspring.domain.errors import Conflict, NotFound
    from mainspring.sdk.client.client import Client
    from mainspring.wire.ids import IdMatch

T = TypeVar("T")
JOB_HELP = "The job's id. Its end or its beginning is enough."
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help=JOB_HELP, autocompletion=completing.jobs)]
_NAMED = 5  # candidates in an error
_COMPARED = 200  # newest jobs, and newest runs, whose ids may be meant
_LONGEST_COMPARED = 200  # characters
_SEARCHED = "only the newest 100,000 are searched: give the whole id (--full-ids shows it) or its beginning"


def call_with_id(client: Client, text: str, call: Callable[[str], T], kind: str) -> T:
    """Call `call` with the id. If there is no such id, call it with the id that begins or ends with `text`."""
    from mainspring.domain.errors import NotFound

    try:
        return call(text)
    except NotFound as missing:
        if not is_missing(missing):
            raise
        match = find_id(client, text, kind)
        if match is None:
            if kind == "job":
                suggest(client, text, missing)
            raise
    return call(match.id)


def call_for_job(client: Client, job_id: str, call: Callable[[str], T]) -> T:
    return call_with_id(client, job_id, call, "job")


def dead_letters_job(client: Client, job_id: str | None) -> str | None:
    """The job of a filter for dead letters, which outlive their job."""
    if job_id is not None and _may_be_a_part(job_id) and client.dead_letters(job=job_id, limit=1).dead_letters:
        return job_id
    return job_filter(client, job_id)


def job_filter(client: Client, job_id: str | None) -> str | None:
    """The job of a filter. A text that fits no job is used as it is."""
    from mainspring.domain.errors import NotFound

    if job_id is None or not _may_be_a_part(job_id):
        return job_id
    try:
        return client.job(job_id).job_id
    except NotFound:
        match = find_id(client, job_id, "job")
        return job_id if match is None else match.id


def dead_letter_ids(client: Client, texts: Iterable[str], *, or_runs: bool = False) -> list[str]:
    """The ids of dead letters, or else of other runs, each of them once. They are all found before anything happens to
    one of them. A single id that does not exist is refused by the request that uses it."""
    texts = list(dict.fromkeys(texts))
    found = []
    for text in texts:
        match = find_id(client, text, "dead_letter")
        if match is None and or_runs:
            match = find_id(client, text, "run")
        if match is None and len(texts) > 1:
            _check_that_it_exists(client, text, or_runs=or_runs)
        found.append(text if match is None else match.id)
    return list(dict.fromkeys(found))


def _check_that_it_exists(client: Client, text: str, *, or_runs: bool) -> None:
    if or_runs:
        client.run(text)
    else:
        client.dead_letter(text)


def find_id(client: Client, text: str, *kinds: str) -> IdMatch | None:
    """The only id that begins or ends with `text`, None if there is none. Raises Conflict if there are several."""
    from mainspring.domain.errors import NotFound

    if not _may_be_a_part(text):
        return None
    try:
        answer = client.find_ids(text, *kinds)
    except NotFound:  # an older server
        return None
    distinct = {match.id: match for match in sorted(answer.ids, key=lambda match: match.kind)}
    if len(distinct) > 1:
        raise _ambiguous(text, list(distinct.values()), more=answer.more)
    if not answer.complete:
        if not distinct:
            raise NotFound(f"no id begins or ends with {text!r}", hint=_SEARCHED)
        if len(text) < SHORT:
            raise _too_short(text)
    return next(iter(distinct.values()), None)


def suggest(client: Client, text: str, missing: NotFound) -> None:
    """Let the hint of the error name the job that is spelt alike, of the newest jobs and those of the newest runs."""
    from difflib import get_close_matches

    from mainspring.domain.errors import MainspringError

    if len(text) > _LONGEST_COMPARED:
        return
    try:
        known = {job.job_id for job in client.jobs(limit=_COMPARED).jobs}
        known |= {run.job_id for run in client.runs(limit=_COMPARED).runs}
    except MainspringError:
        return
    near = get_close_matches(text, sorted(known), n=1)
    if near:
        missing.hint = f"did you mean {near[0]!r}? " + (f"Otherwise {missing.hint}" if missing.hint else "")


def choose(text: str, ids: Iterable[str], kind: str) -> str:
    """The only one of `ids` that begins or ends with `text`, or `text` itself."""
    from mainspring.wire.ids import IdMatch

    known = list(ids)
    if text in known or not _may_be_a_part(text):
        return text
    fitting = [one for one in known if one.startswith(text) or one.endswith(text)]
    if len(fitting) > 1:
        raise _ambiguous(text, [IdMatch(kind, one) for one in fitting], more=False)
    return fitting[0] if fitting else text


def is_missing(error: NotFound) -> bool:
    """Whether the error says that there is no such id. Others are about a part of it, such as an attempt."""
    return error.code == "not_found" and error.field is None


def _may_be_a_part(text: str) -> bool:
    from mainspring.kernel.ids import parse_uuid
    from mainspring.wire.ids import LONGEST_PART, SHORTEST_PART

    return SHORTEST_PART <= len(text) <= LONGEST_PART and parse_uuid(text) is None


def _ambiguous(text: str, matches: list[IdMatch], *, more: bool) -> Conflict:
    from mainspring.domain.errors import Conflict

    named = ", ".join(_words(match) for match in matches[:_NAMED])
    others = " and more" if more or len(matches) > _NAMED else ""
    count = f"more than {len(matches)}" if more else str(len(matches))
    return Conflict(
        f"{count} ids begin or end with {text!r}",
        code="ambiguous_id",
        hint=f"give more characters of one of them: {named}{others}",
    )


def _too_short(text: str) -> Conflict:
    from mainspring.domain.errors import Conflict

    return Conflict(
        f"{text!r} is too short: there are more ids than can be searched",
        code="ambiguous_id",
        hint=f"give at least {SHORT} characters, as the lists show them",
    )


def _words(match: IdMatch) -> str:
    kind = match.kind.replace("_", " ")
    return f"{kind} {match.id}" + (f" ({match.name})" if match.name and match.name != match.id else "")
