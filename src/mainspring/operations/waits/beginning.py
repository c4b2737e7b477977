"""How steps begin to wait, in the transaction in which their rule is met."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.waits import read_wait
from mainspring.domain.tags import changed_meanwhile
from mainspring.domain.workflows.waits import Wait, WaitKind
from mainspring.operations.lifecycle.dispatch import APPROVALS_ASKED
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.lifecycle.events import ApprovalAsked
from mainspring.operations.waits.effects import WaitEffects
from mainspring.store import child_runs, waits
from mainspring.store.pool import Connection
from mainspring.store.waits import NewWait


def wait_in(payload: str) -> Wait:
    """The wait that a resolved payload describes. Raises InvalidInput."""
    value = msgspec.json.decode(payload)
    try:
        return read_wait(value)
    except InvalidInput as error:
        raise InvalidInput(f"the wait cannot begin: {error.in_sentences()}") from None


async def begin(connection: Connection, new: Sequence[NewWait], effects: Effects) -> None:
    """Let these steps wait. The caller has locked their runs as WAITING."""
    if not new:
        return
    wakes = await waits.open_all(connection, new)
    if len(wakes) != len(new):
        raise changed_meanwhile("runs")
    called = [(one.run_id, one.wait.name) for one in new if one.wait.kind == WaitKind.WORKFLOW]
    if called and await child_runs.open_all(connection, called) != len(called):
        raise changed_meanwhile("runs")
    if asked := [ApprovalAsked(one.run_id) for one in new if one.wait.kind == WaitKind.APPROVAL]:
        await APPROVALS_ASKED.happened(connection, asked, effects)
    effects.of(WaitEffects).wakes += [seconds for seconds in wakes if seconds is not None]
    if called or any(one.wait.kind == WaitKind.EVENT for one in new):
        effects.of(WaitEffects).wakes.append(0.0)  # a child is to be started, or perhaps the event is there already
