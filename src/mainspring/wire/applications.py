"""Messages about applications: which schedules their code declares."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from mainspring.wire.formats import ChosenJobId
from mainspring.wire.jobs import JobView
from mainspring.wire.states import JobStatusWord

MOST_SCHEDULES = 10_000
Digest = Annotated[str, Meta(min_length=1, max_length=64, pattern="^[0-9a-f]+$")]


class DeclarationRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `PUT /v1/applications/{application}`: what a version of an application declares.

    job_ids: of all its schedules. fingerprint: a digest of the schedules; another digest is another version. named: the
    code gives the name; otherwise it is that of a module. source: a digest of where the code lies. worker_id: the
    worker that runs this version. prune: pause what the application no longer declares. show_jobs: answer with the
    jobs.
    """

    job_ids: Annotated[list[ChosenJobId], Meta(max_length=MOST_SCHEDULES)]
    fingerprint: Digest
    source: Digest
    named: bool = True
    worker_id: str | None = None
    prune: bool = False
    show_jobs: bool = False


class Undeclared(msgspec.Struct):
    """A job that the application declared earlier and no longer declares. declared_at: when a worker last declared it,
    to the minute. own: False if it may belong to another application with the same default name; it is not paused
    then."""

    job_id: str
    name: str
    status: JobStatusWord
    declared_at: datetime
    own: bool = True
    pause_reason: str | None = None


class DeclarationView(msgspec.Struct):
    """The declaration of an application, as the server recorded it.

    number: of this version; a newer one has a higher number. current: no newer version of the application runs, and the
    worker is not draining. Only a current version changes schedules. outdated: another version has changed jobs since
    workers of this one asked for them (show_jobs), so they have to be compared again. resumed, pruned: jobs that this
    request resumed or paused. undeclared: jobs that the application no longer declares, also those that are paused.
    elsewhere: jobs that another running application declares, with its name. jobs: those of job_ids that exist, if they
    were asked for. unseen: the ids whose jobs did not fit into the answer.
    """

    application: str
    number: int
    current: bool
    outdated: bool = False
    resumed: list[str] = []
    pruned: list[str] = []
    undeclared: list[Undeclared] = []
    elsewhere: dict[str, str] = {}
    jobs: list[JobView] = []
    unseen: list[str] = []
