"""The members of a mapped step: what it maps over, and the runs of its members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from mainspring.domain.job import Spec, StepOf, spec_from_text, spec_to_text, stored_spec
from mainspring.domain.transitions import Follows
from mainspring.domain.workflows.definition import StepDefinition
from mainspring.domain.workflows.flow import STEP_TRIGGER, prefix_of, run_in, step_job_id
from mainspring.domain.workflows.references import Unresolved, Values, mapped_list, resolved_payload
from mainspring.kernel.compute_thread import in_compute_thread
from mainspring.operations.workflows.step_inputs import MOST_RESULTS, values_of
from mainspring.store import fanouts, joins, workflows
from mainspring.store.fanouts import Fanout
from mainspring.store.joins import as_fed
from mainspring.store.pool import Connection
from mainspring.store.workflows import Flow, NewMembers, NewStep
from mainspring.wire.workflows import MAX_MEMBERS

CHUNK = 1000  # items that are stored together
_split = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class Chunk(msgspec.Struct, frozen=True):
    """A part of a list. position: of members that run again, how many come before those in it."""

    number: int
    items: str
    position: int | None = None


class Mapped(msgspec.Struct, frozen=True):
    """What a step is mapped over. chunks: its list, if it has one. targets: the workers of a broadcast. origin and
    repeats: as of a fan-out."""

    total: int
    chunks: list[Chunk] = []
    targets: list[str] | None = None
    origin: UUID | None = None
    repeats: int | None = None

    @property
    def own(self) -> int:
        """How many members run."""
        return self.total if self.repeats is None else self.repeats


async def read_map(connection: Connection, flow: Flow, step: StepDefinition, run_id: UUID) -> Mapped:
    """The members of a mapped step that is ready. Raises Unresolved."""
    of = step.map
    assert of is not None
    if of.range is not None:
        return Mapped(len(range(*of.range)))
    if of.workers is not None:
        labels = _encode(of.workers).decode()
        found = await fanouts.targets(connection, flow.tenant_id, labels, step.queue, step.task, MAX_MEMBERS)
        return Mapped(len(found), targets=found)
    if of.items is not None:
        return await in_compute_thread(_in_chunks, of.items)
    value = mapped_list(of, await values_for(connection, flow, run_id))
    return await in_compute_thread(_in_chunks, _encode(value).decode())


def _in_chunks(text: str) -> Mapped:
    items = _split(text)
    parts = [items[first : first + CHUNK] for first in range(0, len(items), CHUNK)]
    texts = ["[" + ",".join(str(item, "utf-8") for item in part) + "]" for part in parts]
    return Mapped(len(items), [Chunk(number, text) for number, text in enumerate(texts)])


async def values_for(connection: Connection, flow: Flow, run_id: UUID) -> Values:
    """What the references of a step stand for, apart from its items."""
    [run] = await joins.to_resolve(connection, [run_id])
    of = spec_from_text(run.spec_text).step
    uses = {name: run_in(flow.prefix, number) for name, number in ((of and of.uses) or {}).items()}
    ends = await workflows.ends_of(connection, sorted(uses.values()))
    values = values_of(uses, ends, flow.parameters_text)
    known: dict[str, Any] = {}

    def result(step: str) -> Any:  # once for all members
        if step not in known:
            known[step] = values.result(step)
        return known[step]

    return msgspec.structs.replace(values, result=result)


class MemberRows:
    """The runs of members, in order."""

    def __init__(self, flow: Flow, fanout: Fanout, step: StepDefinition, lanes: Sequence[int], *, kept: bool) -> None:
        assert fanout.join_id is not None and fanout.total is not None and fanout.first_number is not None
        self._flow = flow
        self._fanout = fanout
        self._step = step
        self._lanes = lanes
        self._first, self._total = fanout.first_number, fanout.total
        self._job_id = step_job_id(flow.job_id, step.name)
        self._feeds = [as_fed(fanout.join_id, fanout.total)]
        keep = Follows.STEP | Follows.RESULT if kept and self._total <= MOST_RESULTS else Follows(0)
        self._follows = int(Follows.EDGES | keep)
        self._spec: Spec = msgspec.structs.replace(step.spec, step=StepOf(fanout.step))
        self._limited = step.spec.concurrency or step.spec.rate_limit or step.spec.circuit_breaker
        self._plain_spec = spec_to_text(self._spec)
        self.failed: dict[UUID, str] = {}

    @property
    def alike(self) -> bool:
        """Whether the members have one lane and no limits, and differ only in number and payload."""
        return len(self._lanes) == 1 and not self._limited

    def together(
        self, first: int, items: Sequence[Any], values: Values | None, indexes: Sequence[int] | None = None
    ) -> NewMembers:
        """The members from `first` on, one for each of the items, if they are alike. Those in `failed` cannot run.
        `values`: None if their payload has no references. `indexes`: of members that run again."""
        step, payloads = self._step, None
        if values is not None:
            places = range(first, first + len(items))
            payloads = [
                self._payload(place, index, item, values)
                for place, index, item in zip(places, indexes or places, items, strict=True)
            ]
        return NewMembers(
            prefix=prefix_of(self._fanout.run_id),
            first=self._first + first,
            count=len(items),
            tenant_id=self._flow.tenant_id,
            lane_id=self._lanes[0],
            max_attempts=step.spec.retry.max_attempts,
            scheduled_for=self._flow.scheduled_for,
            generation=self._flow.generation,
            trigger=f"{STEP_TRIGGER}{self._flow.flow_id}:",
            name=step.name,
            payload=step.payload if values is None else None,
            payloads=payloads,
            spec=self._plain_spec,
            follows=self._follows,
            feeds=self._feeds,
        )

    def _payload(self, place: int, index: int, item: Any, values: Values) -> str | None:
        try:
            return self._resolved(index, item, values)
        except (Unresolved, ValueError) as error:
            self.failed[run_in(prefix_of(self._fanout.run_id), self._first + place)] = str(error)
            return None

    def _resolved(self, index: int, item: Any, values: Values) -> str:
        own = msgspec.structs.replace(values, item=item, index=index, total=self._total)
        return resolved_payload(self._step.payload or "{}", own)

    def rows(
        self, first: int, items: Sequence[Any], values: Values | None, indexes: Sequence[int] | None = None
    ) -> list[NewStep]:
        """The rows of the members, made one by one."""
        places = range(first, first + len(items))
        return [
            self._row(place, index, item, values)
            for place, index, item in zip(places, indexes or places, items, strict=True)
        ]

    def _row(self, place: int, index: int, item: Any, values: Values | None) -> NewStep:
        step, number = self._step, self._first + place
        run_id = run_in(prefix_of(self._fanout.run_id), number)
        payload, spec = step.payload, self._plain_spec
        try:
            if values is not None:
                payload = self._resolved(index, item, values)
            if self._limited:
                job = msgspec.structs.replace(step.job(), payload=payload, spec=self._spec)
                spec = stored_spec(job, self._job_id)
        except (Unresolved, ValueError) as error:
            self.failed[run_id] = str(error)
            payload, spec = None, self._plain_spec
        return NewStep(
            run_id=run_id,
            tenant_id=self._flow.tenant_id,
            lane_id=self._lanes[index] if len(self._lanes) > 1 else self._lanes[0],
            max_attempts=step.spec.retry.max_attempts,
            scheduled_for=self._flow.scheduled_for,
            job_id=None,
            generation=self._flow.generation,
            trigger=f"{STEP_TRIGGER}{self._flow.flow_id}:{number}",
            name=step.name,
            payload=payload,
            spec=spec,
            follows=self._follows,
            feeds=self._feeds,
            waits_for=None,
            rule=None,
        )
