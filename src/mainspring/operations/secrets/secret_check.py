"""Refuses jobs that name a secret which does not exist or is not for them. A job that names none costs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mainspring.domain.errors import MainspringError
from mainspring.domain.intake.job_secrets import SecretScope, check_named, named_secrets
from mainspring.domain.job import JobDefinition
from mainspring.kernel.ids import TenantId
from mainspring.store import secrets
from mainspring.store.pool import Connection, Store
from mainspring.wire.problems import FieldProblem

_MOST_NAMES = 200
_MOST_ERRORS = 100


class NamedByJob:
    """The secrets that a job names, and the job's queue and task."""

    __slots__ = ("named", "place", "queue", "task")

    def __init__(self, place: int, named: dict[str, str], queue: str, task: str) -> None:
        self.place = place
        self.named = named
        self.queue = queue
        self.task = task


def named_by(definitions: Iterable[JobDefinition]) -> list[NamedByJob]:
    """Those that name secrets."""
    return [
        NamedByJob(place, named, one.queue, one.task)
        for place, one in enumerate(definitions)
        if one.spec.setup is not None and (named := named_secrets(one.task, one.spec.setup))
    ]


class SecretCheck:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def check(self, tenant: TenantId, definition: JobDefinition) -> None:
        """Raises InvalidInput with the field."""
        if found := named_by([definition]):
            async with self._store.reads.acquire() as connection:
                await check_in(connection, tenant, found)

    async def check_named(self, tenant: TenantId, found: Sequence[NamedByJob]) -> None:
        """Raises InvalidInput with the field."""
        if found:
            async with self._store.reads.acquire() as connection:
                await check_in(connection, tenant, found)

    async def problems(self, tenant: TenantId, definitions: Sequence[JobDefinition]) -> list[FieldProblem]:
        """What is wrong with the jobs of a batch."""
        if not (found := named_by(definitions)):
            return []
        async with self._store.reads.acquire() as connection:
            known, names = await _known(connection, tenant, found)
        problems: list[FieldProblem] = []
        for one in found:
            try:
                check_named(one.named, known, one.queue, one.task, all_names=names)
            except MainspringError as error:
                problems.append(error.as_field_problem(one.place))
                if len(problems) >= _MOST_ERRORS:
                    break
        return problems


async def check_in(connection: Connection, tenant: TenantId, found: Sequence[NamedByJob]) -> None:
    """In the transaction of a change. Raises InvalidInput with the field."""
    if not found:
        return
    known, names = await _known(connection, tenant, found)
    for one in found:
        check_named(one.named, known, one.queue, one.task, all_names=names)


async def _known(
    connection: Connection, tenant: TenantId, found: Sequence[NamedByJob]
) -> tuple[dict[str, SecretScope], list[str]]:
    wanted = {name for one in found for name in one.named}
    rows = await secrets.scopes(connection, tenant, wanted)
    known = {row.name: SecretScope(frozenset(row.queues), frozenset(row.tasks)) for row in rows}
    names = await secrets.names(connection, tenant, _MOST_NAMES) if len(known) < len(wanted) else []
    return known, names
