"""Operations as people use them: count, begin, read, cancel."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.domain.bulk import (
    MOST_AT_WORK,
    MOST_IDS,
    BulkState,
    Target,
    check_expected,
    operation_ended,
    too_many_operations,
)
from mainspring.domain.errors import InvalidInput, NotFound
from mainspring.domain.tags import check_tag, state_tag
from mainspring.domain.texts import check_line, shown
from mainspring.kernel.ids import parse_uuid, uuid7
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.operations.bulk.counting import Counter
from mainspring.operations.bulk.selector import BulkRequest, Selector
from mainspring.operations.lookup import id_in, states_in
from mainspring.operations.object_guard import ObjectGuard
from mainspring.operations.paging.cursors import encode_cursor, run_cursor
from mainspring.operations.paging.search import searching
from mainspring.store import operations
from mainspring.store.lanes import LaneRegistry
from mainspring.store.operations import NewOperation, OperationRow
from mainspring.store.pool import Store
from mainspring.wire.bulk import Act, Counted, Failure, OperationList, OperationView
from mainspring.wire.states import DEAD_LETTER_VERBS, JOB_VERBS, RUN_VERBS

log = get_logger("bulk")

_VERBS = {Target.JOBS: JOB_VERBS, Target.RUNS: RUN_VERBS, Target.DEAD_LETTERS: DEAD_LETTER_VERBS}
_EXAMPLES = 10
_LONGEST_ID = 1000
_failures = msgspec.json.Decoder(list[Failure]).decode


class BulkControl:
    def __init__(self, store: Store, lanes: LaneRegistry) -> None:
        self._store = store
        selector = Selector(store, lanes)
        self._objects = ObjectGuard(store, lanes)
        self._counter = Counter(store, lanes, selector)

    async def act(self, caller: Caller, target: Target, request: Act) -> Counted | OperationView:
        """Count what is chosen. Unless it is a dry run, begin an operation, which is carried out after the answer."""
        verb = _verb(target, request.verb)
        ids = None if request.ids is None else _ids(target, request.ids)
        if (ids is None) == (request.filter is None):
            raise InvalidInput(
                "what to act on is given by `filter` or by `ids`, and only by one of them", field="filter",
                hint="a filter has the parameters of the list; {} stands for all of it",
            )  # fmt: skip
        if request.filter is not None:
            counted = await self._counter.count(BulkRequest(caller, target, verb, request.filter))
        else:
            assert ids is not None
            if not caller.reaches_all:
                await self._check_reached(caller, target, ids)
            counted = Counted(len(ids), exact=True, examples=ids[:_EXAMPLES])
        if request.dry_run:
            return counted
        _check_confirmed(request, counted)
        new = NewOperation(
            uuid7(), target, verb, None if request.filter is None else msgspec.json.encode(request.filter).decode(),
            ids, counted.count, counted.exact, request.expected, caller.name,
            caller.credential,
        )  # fmt: skip
        async with self._store.change() as connection:
            if not await operations.insert(connection, caller.tenant, new, MOST_AT_WORK):
                raise too_many_operations()
            chosen = {"filter": request.filter} if ids is None else {"ids": ids}
            after = {"target": new.target, "verb": verb, "count": new.count, **chosen}
            await record(connection, caller, "operation", new.operation_id, None, after)
        log.info(
            "operation begins", operation=str(new.operation_id), tenant=caller.tenant, target=new.target, verb=verb,
            count=new.count, by=caller.name,
        )  # fmt: skip
        return await self.operation(caller, str(new.operation_id))

    async def _check_reached(self, caller: Caller, target: Target, ids: Sequence[str]) -> None:
        """Raise NotFound if the token of the caller does not reach one of them."""
        for one in ids:
            if target is Target.JOBS:
                await self._objects.check(caller, job_id=one)
            else:
                await self._objects.check(caller, run_id=one)

    async def operation(self, caller: Caller, operation_id: str) -> OperationView:
        async with self._store.reads.acquire() as connection:
            row = await operations.get(connection, caller.tenant, id_in(operation_id, _missing))
        if row is None or not (caller.reaches_all or row.token_id == caller.credential):
            raise _missing(operation_id)
        return _view(row)

    async def operations(self, caller: Caller, states: Sequence[str], cursor: str | None, limit: int) -> OperationList:
        """Newest first. A narrowed token sees only those that it has begun."""
        begun_by = None if caller.reaches_all else caller.credential
        numbers = states_in(states, BulkState, "an operation", [state.name for state in BulkState])
        async with searching(self._store, caller.tenant, "operations") as connection:
            rows = await operations.page(connection, caller.tenant, run_cursor(cursor), numbers, limit + 1, begun_by)
        following = encode_cursor(str(rows[limit - 1].operation_id)) if len(rows) > limit else None
        return OperationList([_view(row) for row in rows[:limit]], following)

    async def cancel(self, caller: Caller, operation_id: str, if_match: str | None = None) -> OperationView:
        """What is done stays done. A second call changes nothing. It is only cancelled while it runs, so a tag of
        another state changes nothing either."""
        done = False
        if not caller.reaches_all:
            await self.operation(caller, operation_id)
        if if_match in (None, state_tag(BulkState.RUNNING.name)):
            async with self._store.change() as connection:
                reason = f"cancelled by {caller.name}"
                number = id_in(operation_id, _missing)
                done = await operations.cancel(connection, caller.tenant, number, reason)
                if done:
                    states = ({"state": state.name} for state in (BulkState.RUNNING, BulkState.CANCELLED))
                    await record(connection, caller, "operation", number, *states)
        view = await self.operation(caller, operation_id)
        if not done:
            check_tag("operation", view.etag, if_match)
        if not done and view.state != BulkState.CANCELLED.name:
            raise operation_ended(operation_id, BulkState[view.state])
        if done:
            log.info("operation is cancelled", operation=operation_id, tenant=caller.tenant, by=caller.name)
        return view


def _check_confirmed(request: Act, counted: Counted) -> None:
    if request.expected is None:
        if request.filter is not None:
            raise InvalidInput(
                "the number that you expect is missing", field="expected",
                hint=f"count with dry_run first, and send that number; now it is {counted.count}",
            )  # fmt: skip
        return
    check_expected(counted.count, request.expected)


def _verb(target: Target, given: str) -> str:
    verb = given.lower()
    if verb not in _VERBS[target]:
        raise InvalidInput(
            f"{shown(given)} is not a verb for {target.replace('_', ' ')}", field="verb",
            expected="one of " + ", ".join(_VERBS[target]),
        )  # fmt: skip
    return "retry" if target is Target.RUNS and verb == "replay" else verb


def _ids(target: Target, given: list[str]) -> list[str]:
    """The ids, each once. Raises InvalidInput."""
    if not 1 <= len(given) <= MOST_IDS:
        raise InvalidInput(f"there are {len(given)} ids", field="ids", expected=f"1 to {MOST_IDS}")
    for index, one in enumerate(given):
        field = f"ids[{index}]"
        check_line(one, field)
        if target is Target.JOBS and not 1 <= len(one) <= _LONGEST_ID:
            raise InvalidInput("this is not the id of a job", field=field, expected=f"1 to {_LONGEST_ID} characters")
        if target is not Target.JOBS and parse_uuid(one) is None:
            raise InvalidInput(f"{shown(one)} is not the id of a run", field=field, expected="a UUID")
    return list(dict.fromkeys(given if target is Target.JOBS else map(str.lower, given)))


def _missing(text: str) -> NotFound:
    return NotFound(f"there is no operation {shown(text)}", hint="see GET /v1/operations")


def _view(row: OperationRow) -> OperationView:
    return OperationView(
        id=str(row.operation_id),
        target=row.target,
        verb=row.verb,
        state=BulkState(row.state).name,
        count=row.count,
        exact=row.exact,
        expected=row.expected,
        done=row.done,
        failed=row.failed,
        failures=_failures(row.failures_text),
        reason=row.reason,
        filter=None if row.filter_text is None else msgspec.json.decode(row.filter_text),
        requested_by=row.requested_by,
        created_at=row.created_at,
        updated_at=row.updated_at,
        ended_at=row.ended_at,
        etag=state_tag(BulkState(row.state).name),
    )
