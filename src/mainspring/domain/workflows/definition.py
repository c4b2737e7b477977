"""The definition of a workflow, as intake produces it and the store saves it, once for each version."""

from __future__ import annotations

import msgspec

from mainspring.domain.job import DEFAULT_SPEC, JobDefinition, Overlap, Priority, Spec
from mainspring.domain.workflows.flow import WAIT_TASK
from mainspring.domain.workflows.graph import Graph
from mainspring.kernel.config import DEFAULT_QUEUE

ALL_SUCCESS, ALL_DONE, ONE_SUCCESS, ONE_FAILED = "all_success", "all_done", "one_success", "one_failed"
SKIP, FAIL = "skip", "fail"


class FromStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a step, or what is at a path in it."""

    step: str
    path: str = ""


class StepMap(msgspec.Struct, frozen=True, omit_defaults=True):
    """The members of a mapped step, by exactly one of items, source, parameter, range and workers. items: a JSON array
    as text, with `total` items. source: a list in the result of an upstream step. parameter: a parameter of the run
    that is a list. range: start, stop and step. workers: labels of live workers."""

    items: str | None = None
    total: int | None = None
    source: FromStep | None = None
    range: tuple[int, int, int] | None = None
    workers: dict[str, str] | None = None
    max_parallel: int | None = None
    max_failures: int | None = None
    parameter: str | None = None


class StepDefinition(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One step: what it runs, as of a job, and what it waits for. waits_for: the index of its set of parents in
    `WorkflowDefinition.joins`; None if it has none. refers: its payload has references (see references.py)."""

    name: str
    task: str
    payload: str | None = None
    queue: str = DEFAULT_QUEUE
    priority: int = Priority.NORMAL
    spec: Spec = DEFAULT_SPEC
    required_labels: dict[str, str] | None = None
    waits_for: int | None = None
    rule: str = ALL_SUCCESS
    on_upstream_failure: str = SKIP
    map: StepMap | None = None
    refers: bool = False

    @property
    def waits(self) -> bool:
        """Whether it waits without a slot, and runs nothing."""
        return self.task == WAIT_TASK

    @property
    def calls(self) -> bool:
        """Whether it runs another workflow."""
        return self.waits and (self.payload or "").startswith('{"workflow":')

    @property
    def may_wait(self) -> bool:
        """Whether it waits, or its service may answer later."""
        return self.waits or self.spec.callback is not None

    def job(self) -> JobDefinition:
        """The definition of its runs."""
        return JobDefinition(
            task=self.task,
            name=self.name,
            payload=self.payload,
            queue=self.queue,
            priority=self.priority,
            overlap=Overlap.ALLOW,
            spec=self.spec,
            required_labels=self.required_labels,
        )


class WorkflowDefinition(msgspec.Struct, frozen=True, omit_defaults=True):
    """joins: the distinct sets of parents, each as ascending indexes of steps. Steps that wait for the same parents
    share one: a layer of 100 steps that each wait for 100 others is one join, not 10,000 edges. last: the steps that no
    other step waits for."""

    steps: list[StepDefinition]
    joins: list[list[int]]
    last: list[int]

    def graph(self) -> Graph:
        return Graph(
            [step.name for step in self.steps],
            self.joins,
            [step.waits_for for step in self.steps],
            sum(len(self.joins[step.waits_for]) for step in self.steps if step.waits_for is not None),
        )


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(WorkflowDefinition).decode


def definition_to_text(definition: WorkflowDefinition) -> str:
    return _encode(definition).decode()


def definition_from_text(text: str) -> WorkflowDefinition:
    return _decode(text)
