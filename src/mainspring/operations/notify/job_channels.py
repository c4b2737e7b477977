"""Checks that the channels exist that rules of jobs name."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.domain.errors import InvalidInput
from mainspring.domain.job import JobDefinition
from mainspring.domain.notify.rules import unknown_channel
from mainspring.kernel.ids import TenantId
from mainspring.store import channels
from mainspring.store.pool import Connection, Store
from mainspring.wire.problems import FieldProblem


async def check_channels(store: Store, tenant: TenantId, definition: JobDefinition) -> None:
    """Raise InvalidInput if a job names a channel that does not exist. A job without rules costs nothing."""
    if definition.spec.notify is not None:
        async with store.reads.acquire() as connection:
            await check_channels_of(connection, tenant, definition)


async def check_channels_of(connection: Connection, tenant: TenantId, definition: JobDefinition) -> None:
    if (refusal := refused(definition, await channels.names(connection, tenant))) is not None:
        raise refusal


async def check_batch(store: Store, tenant: TenantId, definitions: Sequence[JobDefinition]) -> list[FieldProblem]:
    """What is wrong with the channels of each job."""
    if all(one.spec.notify is None for one in definitions):
        return []
    async with store.reads.acquire() as connection:
        known = await channels.names(connection, tenant)
    found = ((index, refused(one, known)) for index, one in enumerate(definitions))
    return [error.as_field_problem(index) for index, error in found if error is not None]


def refused(definition: JobDefinition, known: list[str]) -> InvalidInput | None:
    for index, own in enumerate(definition.spec.notify or ()):
        for name in own.to:
            if name not in known:
                return unknown_channel(name, known, f"notify[{index}].to")
    return None
