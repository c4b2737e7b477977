"""Approvals: steps that wait for a person, who decides them."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

import msgspec

from mainspring.domain.errors import Conflict, Forbidden, InvalidInput, NotFound
from mainspring.domain.intake.waits import read_answer
from mainspring.domain.job import spec_to_show
from mainspring.domain.texts import check_line
from mainspring.domain.transitions import StoredState
from mainspring.domain.workflows.flow import flow_of, workflow_of
from mainspring.domain.workflows.waits import Wait, WaitKind
from mainspring.kernel.ids import parse_uuid
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.operations.lookup import load_lane
from mainspring.operations.paging.cursors import bad_cursor, decode_cursor, encode_cursor
from mainspring.operations.signals import Signals
from mainspring.operations.waits.ending import WaitEnd, end_waits
from mainspring.store import history, waits
from mainspring.store.deadlocks import despite_deadlocks
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import Connection, Store
from mainspring.store.waits import ApprovalRow
from mainspring.wire.approvals import ApprovalList, ApprovalView, Approve, Decided, Reject
from mainspring.wire.workflows import ApprovalFieldIn

_MOST_BYTES = 64 * 1024  # of a result
_encode = msgspec.json.Encoder().encode


class Approvals:
    def __init__(self, store: Store, lanes: LaneRegistry, signals: Signals) -> None:
        self._store = store
        self._lanes = lanes
        self._signals = signals

    async def approvals(self, caller: Caller, *, everybody: bool, cursor: str | None, limit: int) -> ApprovalList:
        """Steps that wait for this caller, or for anybody. A narrowed token sees those that it reaches."""
        before = None
        if cursor is not None and (before := parse_uuid(decode_cursor(cursor))) is None:
            raise bad_cursor()
        async with self._store.reads.acquire() as connection:
            rows = await waits.approvals(connection, caller.tenant, before, limit)
            reached = [row for row in rows if await self._reaches(connection, caller, row)]
        views = [_view(caller, row) for row in reached]
        shown = [view for view in views if everybody or view.may_decide]
        return ApprovalList(shown, encode_cursor(str(rows[-1].run_id)) if len(rows) == limit else None)

    async def _reaches(self, connection: Connection, caller: Caller, row: ApprovalRow) -> bool:
        if caller.narrowing is None or caller.reaches_all:
            return True
        lane = await load_lane(self._lanes, connection, row.lane_id)
        return caller.narrowing.has(lane.queue, lane.task, spec_to_show(row.spec_text)[0].labels)

    async def approve(self, caller: Caller, run_id: UUID, given: Approve) -> Decided:
        """The step succeeds. What was filled in is in its result."""
        return await despite_deadlocks(partial(self._decide, caller, run_id, given.reason, given.fields or {}))

    async def reject(self, caller: Caller, run_id: UUID, given: Reject) -> Decided:
        """The step fails, with who has rejected it and why as its reason."""
        return await despite_deadlocks(partial(self._decide, caller, run_id, given.reason, None))

    async def _decide(self, caller: Caller, run_id: UUID, reason: str | None, fields: dict[str, Any] | None) -> Decided:
        if reason is not None:
            check_line(reason, "reason")
        async with self._store.change() as connection:
            locked = await waits.lock(connection, caller.tenant, run_id, WaitKind.APPROVAL)
            if locked is None:
                raise await _not_open(connection, caller, run_id)
            wait = locked.wait
            if not may_decide(caller, wait):
                raise Forbidden(
                    f"the approval {wait.name!r} is decided by {' or '.join(wait.by)}, and not by {caller.name!r}",
                    code="not_for_you", field="Authorization", hint="ask one of them",
                )  # fmt: skip
            result: dict[str, Any] | None = None
            state, why = StoredState.SUCCESS, None
            if fields is not None:
                answer = read_answer(wait.fields, fields)
                result = {"approval": wait.name, "by": caller.name, "reason": reason, "fields": answer}
                if len(_encode(result)) > _MOST_BYTES:
                    raise InvalidInput("the fields are too large", field="fields", expected=f"{_MOST_BYTES:,} bytes")
            else:
                state, why = StoredState.FAILED, f"rejected by {caller.name}" + (f": {reason}" if reason else "")
            text = None if result is None else _encode(result).decode()
            end = WaitEnd(locked.run_id, locked.fence, locked.attempt, state, text, why)
            effects = await end_waits(connection, [end])
            after = {"status": state.name, "approval": wait.name, "reason": reason, "payload": fields}
            await record(connection, caller, "run", run_id, {"status": "WAITING"}, after)
        effects.publish(self._signals)
        return Decided(str(run_id), state.name, wait.name, caller.name, reason, result)


def may_decide(caller: Caller, wait: Wait) -> bool:
    """Whether the caller is one of those who decide. An admin has every role."""
    who = "user" if caller.user is not None else "token"
    mine = {f"role:{caller.role}", f"{who}:{caller.name}"}
    return any(one in mine or (caller.role == "admin" and one.startswith("role:")) for one in wait.by)


def _view(caller: Caller, row: ApprovalRow) -> ApprovalView:
    wait = row.wait
    hidden = caller.narrowing is not None and not caller.narrowing.payloads
    return ApprovalView(
        run_id=str(row.run_id),
        approval=wait.name,
        workflow_id=workflow_of(row.job_id or "") or "",
        workflow_run_id=flow_of(row.trigger) or "",
        step=row.name or "",
        by=wait.by,
        waits_since=row.began_at,
        may_decide=may_decide(caller, wait),
        fields={
            name: msgspec.convert(msgspec.to_builtins(field), ApprovalFieldIn) for name, field in wait.fields.items()
        },
        details=None if hidden else wait.details,
        times_out_at=row.wake_at,
        on_timeout=wait.on_timeout,
    )


async def _not_open(connection: Connection, caller: Caller, run_id: UUID) -> Exception:
    run = await history.find_run(connection, caller.tenant, run_id)
    if run is None:
        return NotFound(f"there is no run {run_id}", hint="see GET /v1/approvals")
    state = StoredState(run.state)
    if state in (StoredState.SUCCESS, StoredState.FAILED, StoredState.CANCELLED, StoredState.SKIPPED):
        return Conflict(f"the approval of run {run_id} has ended with {state.name}", code="run_ended")
    return Conflict(f"run {run_id} does not wait for an approval", code="no_approval", hint="see GET /v1/approvals")
