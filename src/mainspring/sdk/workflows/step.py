"""A step of a workflow, and the arrows between steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, Self, TypedDict, TypeVar, cast, overload

from mainspring.sdk.workflows.references import FROM, Reference, with_references

MAY_REFER = ("payload", "sleep", "wait", "parameters")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
StepT = TypeVar("StepT", bound="Step[Any]")


class MapResult(TypedDict, Generic[R]):
    """The result of a mapped step: how its members ended. `results` are those of the members, in their order. One that
    did not succeed has None there. If there are more than 1,000, or if they are too large together, `results` is None:
    read them with `client.workflow_steps(..., members=True)`."""

    total: int
    succeeded: int
    failed: int
    skipped: int
    results: list[R]


class Steps(tuple["Step[Any]", ...]):
    """Several steps side by side: `[a, b] >> report` and `extract >> [a, b]`."""

    @overload
    def __rshift__(self, other: StepT) -> StepT: ...

    @overload
    def __rshift__(self, other: Iterable[Step[Any]]) -> Steps: ...

    def __rshift__(self, other: Any) -> Any:
        return _arrow(self, other)

    def __rrshift__(self, other: Iterable[Step[Any]]) -> Steps:
        return cast(Steps, _arrow(other, self))


class Owner(Protocol):
    """The workflow to which a step belongs."""

    @property
    def workflow_id(self) -> str:
        """Its id."""

    def owner_of(self, reference: Reference) -> Step[Any] | None:
        """The step to whose result a reference leads. Raises ValueError if it is one of another workflow."""


class Step(Generic[R_co]):
    """A step of a workflow. R is what its task returns.

    `result` stands for its result in the payload of another step, which then runs after it. `a >> b` lets b run after
    a without its result, and `a >> [b, c] >> d` does so for several.
    """

    def __init__(
        self, workflow: Owner, name: str, fields: Mapping[str, Any], function: Callable[..., Any] | None = None
    ) -> None:
        self.workflow = workflow
        self.name = name
        self.upstream: dict[str, Step[Any]] = {}
        self._function = function
        self._map: dict[str, Any] | None = None
        self._fields = {
            key: with_references(value, self._depend) if key in MAY_REFER else value for key, value in fields.items()
        }

    def __repr__(self) -> str:
        return f"<step {self.name} of {self.workflow.workflow_id}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function of the step, as a test does."""
        if self._function is None:
            raise TypeError(f"{self!r} has no function here")
        return self._function(*args, **kwargs)

    @property
    def result(self) -> R_co:
        """The result of the step, for the payload of another step. `step.result["rows"]` is a part of it."""
        return cast(R_co, Reference(FROM, self.name, self))

    @property
    def mapped(self) -> bool:
        """Whether it has members."""
        return self._map is not None

    @property
    def queue(self) -> str | None:
        """The queue that it names."""
        queue: str | None = self._fields.get("queue")
        return queue

    def after(self, *steps: Step[Any] | Iterable[Step[Any]]) -> Self:
        """Let this step run after others. Returns this step."""
        for step in flat(steps):
            if step.workflow is not self.workflow:
                raise ValueError(f"{step!r} belongs to another workflow than {self!r}")
            self.upstream.setdefault(step.name, step)
        return self

    def map(
        self,
        over: Any = None,
        *,
        range: int | list[int] | tuple[int, ...] | None = None,
        workers: Mapping[str, str] | None = None,
        max_parallel: int | None = None,
        max_failures: int | None = None,
    ) -> Step[MapResult[R_co]]:
        """Run the step once for each member: of a list or of the result of another step (`over`), of a range of
        numbers, or once on each live worker with these labels. In its payload `workflow.item`, `workflow.index` and
        `workflow.total` stand for the values of a member. At most `max_parallel` members run at once. With more than
        `max_failures` failed ones the step fails, and the rest is skipped."""
        given = {
            "over": None if over is None else with_references(over, self._depend),
            "range": list(range) if isinstance(range, tuple) else range,
            "workers": None if workers is None else dict(workers),
            "max_parallel": max_parallel,
            "max_failures": max_failures,
        }
        if sum(given[name] is not None for name in ("over", "range", "workers")) != 1:
            raise ValueError(f"{self!r}: map needs one of over, range and workers")
        self._map = {name: value for name, value in given.items() if value is not None}
        return cast("Step[MapResult[R_co]]", self)

    @overload
    def __rshift__(self, other: StepT) -> StepT: ...

    @overload
    def __rshift__(self, other: Iterable[Step[Any]]) -> Steps: ...

    def __rshift__(self, other: Any) -> Any:
        return _arrow((self,), other)

    def __rrshift__(self, other: Iterable[Step[Any]]) -> Self:
        return cast(Self, _arrow(other, self))

    def definition(self) -> dict[str, Any]:
        """The step as `POST /v1/workflows` takes it."""
        found: dict[str, Any] = {"name": self.name, **self._fields}
        if self.upstream:
            found["depends_on"] = list(self.upstream)
        if self._map is not None:
            found["map"] = self._map
        return found

    def _depend(self, reference: Reference) -> None:
        owner = self.workflow.owner_of(reference)
        if owner is self:
            raise ValueError(f"{self!r} cannot use its own result")
        if owner is not None:
            self.after(owner)


def flat(steps: Iterable[Step[Any] | Iterable[Step[Any]]]) -> list[Step[Any]]:
    """The steps of arguments that are steps or lists of steps."""
    found: list[Step[Any]] = []
    for one in steps:
        found += [one] if isinstance(one, Step) else list(one)
    return found


def _arrow(before: Iterable[Step[Any]], after: Any) -> Any:
    earlier = list(before)
    if isinstance(after, Step):
        return after.after(*earlier)
    later = Steps(after)
    for step in later:
        step.after(*earlier)
    return later
