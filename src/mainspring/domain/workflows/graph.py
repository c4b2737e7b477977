"""The graph of the steps of a workflow. Everything here is linear in the steps and their joins.

Steps that wait for the same parents share one set of them (a join). So 100 layers of 100 steps, each waiting for the
whole layer before it, have 99 joins with 9,900 members instead of 990,000 edges.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.domain.texts import meant, shown
from mainspring.wire.workflows import MAX_STEPS

MAX_EDGES = 2_000_000
SHOWN_PARENTS = 500_000  # characters of their names in one answer
MAX_FAR = 10_000  # steps that others refer to from afar
_SHOWN_IN_A_CYCLE = 12
_NEAR = 64  # steps that are visited one by one
_TARGETS_AT_ONCE = 2048  # bits of a number; one for each step stays below 30 MB


class Graph(msgspec.Struct, frozen=True):
    """names: of the steps. joins: the distinct sets of parents, ascending. waits_for: the join of each step, or None.
    edges: how many there are."""

    names: Sequence[str]
    joins: list[list[int]]
    waits_for: list[int | None]
    edges: int

    def parents(self, step: int) -> list[int]:
        joined = self.waits_for[step]
        return [] if joined is None else self.joins[joined]

    def page_end(self, first: int, end: int) -> int:
        """Where a page of steps ends that begins at `first`: at `end`, or before it if the steps have very many
        parents. A page has at least one step."""
        room = SHOWN_PARENTS
        for step in range(first, end):
            room -= self.size_of_parents(step)
            if room < 0:
                return max(step, first + 1)
        return end

    def size_of_parents(self, step: int) -> int:
        """The characters of their names."""
        return sum(len(self.names[parent]) for parent in self.parents(step))

    def last(self) -> list[int]:
        """The steps that no other step waits for."""
        parents = {parent for join in self.joins for parent in join}
        return [step for step in range(len(self.names)) if step not in parents]

    def feeds(self) -> list[list[int]]:
        """The joins that each step is part of."""
        feeds: list[list[int]] = [[] for _ in self.names]
        for number, join in enumerate(self.joins):
            for parent in join:
                feeds[parent].append(number)
        return feeds

    def waiting(self) -> list[list[int]]:
        """The steps that wait for each join."""
        waiting: list[list[int]] = [[] for _ in self.joins]
        for step, join in enumerate(self.waits_for):
            if join is not None:
                waiting[join].append(step)
        return waiting


def build(names: Sequence[str], depends_on: Sequence[Sequence[str]]) -> Graph:
    """The graph of steps with these names and parents. Raises InvalidInput for names that are unknown or double."""
    if not names:
        raise InvalidInput("a workflow needs a step", field="steps", expected=f"1 to {MAX_STEPS:,} steps")
    if len(names) > MAX_STEPS:
        raise too_many_steps(len(names))
    numbers: dict[str, int] = {}
    for step, name in enumerate(names):
        if numbers.setdefault(name, step) != step:
            raise InvalidInput(
                f"two steps have the name {shown(name)}", code="duplicate_step", field=f"steps[{step}].name",
                hint=f"steps[{numbers[name]}] has it too; choose another",
            )  # fmt: skip
    joins: list[list[int]] = []
    by_names: dict[str | tuple[str, ...], int] = {}
    by_parents: dict[tuple[int, ...], int] = {}
    waits_for: list[int | None] = []
    edges = 0
    for step, given in enumerate(depends_on):
        if not given:
            waits_for.append(None)
            continue
        edges += len(given)
        if edges > MAX_EDGES:
            raise InvalidInput(
                f"the steps have more than {MAX_EDGES:,} dependencies", field=f"steps[{step}].depends_on",
                hint="let a step in between wait for many, and others for that step",
            )  # fmt: skip
        key = given[0] if len(given) == 1 else tuple(given)
        join = by_names.get(key)
        if join is None and len(given) == 1 and key in numbers:
            by_names[key] = join = len(joins)
            joins.append([numbers[given[0]]])
        elif join is None:
            parents = _parents(step, given, numbers)
            join = by_parents.setdefault(parents, len(joins))  # the same parents in another order
            if join == len(joins):
                joins.append(list(parents))
            by_names[key] = join
        waits_for.append(join)
    return Graph(names, joins, waits_for, edges)


def too_many_steps(count: int) -> InvalidInput:
    return InvalidInput(f"the workflow has {count:,} steps", field="steps", expected=f"at most {MAX_STEPS:,}")


def _parents(step: int, given: Sequence[str], numbers: dict[str, int]) -> tuple[int, ...]:
    try:
        parents = sorted([numbers[name] for name in given])
    except KeyError:
        parents = []
    if len(set(parents)) != len(given):
        raise _wrong_parent(step, given, numbers)
    return tuple(parents)


def _wrong_parent(step: int, given: Sequence[str], numbers: dict[str, int]) -> InvalidInput:
    """The error for names of which one is unknown or there twice."""
    seen: dict[str, int] = {}
    place = next(
        place for place, name in enumerate(given) if name not in numbers or seen.setdefault(name, place) != place
    )
    field = f"steps[{step}].depends_on[{place}]"
    if given[place] not in numbers:
        return InvalidInput(
            f"there is no step {shown(given[place])}", code="unknown_step", field=field,
            hint=meant(given[place], numbers, "name a step of this workflow"),
        )  # fmt: skip
    return InvalidInput(
        f"{shown(given[place])} is named twice", code="duplicate_step", field=field, hint="name it once"
    )


def layers(graph: Graph) -> list[int]:
    """The layer of each step: 0 without parents, otherwise one more than the highest of its parents. Raises
    InvalidInput that spells out a cycle."""
    layer = [0] * len(graph.names)
    feeds, waiting = graph.feeds(), graph.waiting()
    missing = [len(join) for join in graph.joins]
    placed = [step for step, join in enumerate(graph.waits_for) if join is None]
    for step in placed:  # it grows meanwhile, layer by layer: the last parent of a join is in the highest layer
        for join in feeds[step]:
            missing[join] -= 1
            if not missing[join]:
                height = layer[step] + 1
                for child in waiting[join]:
                    layer[child] = height
                placed += waiting[join]
    if len(placed) < len(graph.names):
        raise _cyclic(graph, {join for join, count in enumerate(missing) if count})
    return layer


def _cyclic(graph: Graph, undecided: set[int]) -> InvalidInput:
    """The error for a graph whose steps behind these joins wait for each other."""
    stuck = {step for step, join in enumerate(graph.waits_for) if join in undecided}
    step = min(stuck)
    seen: dict[int, int] = {}
    path: list[int] = []
    while step not in seen:
        seen[step] = len(path)
        path.append(step)
        step = next(parent for parent in graph.parents(step) if parent in stuck)
    cycle = path[seen[step] :]  # each waits for the next one
    cycle.reverse()  # now each comes before the next one
    begin = cycle.index(min(cycle))
    cycle = cycle[begin:] + cycle[:begin]
    names = [graph.names[step] for step in cycle]
    if len(names) > _SHOWN_IN_A_CYCLE:
        half = _SHOWN_IN_A_CYCLE // 2
        names = [*names[:half], f"... ({len(names) - 2 * half} more)", *names[-half:]]
    return InvalidInput(
        f"the steps wait for each other in a cycle: {' > '.join([*names, graph.names[cycle[0]]])}", code="cycle",
        field=f"steps[{cycle[0]}].depends_on", hint="take one of these dependencies out",
    )  # fmt: skip


def downstream(graph: Graph, starts: Iterable[int]) -> set[int]:
    """These steps and all that come after them."""
    feeds, waiting = graph.feeds(), graph.waiting()
    found = set(starts)
    left = list(found)
    seen: set[int] = set()
    while left:
        for join in feeds[left.pop()]:
            if join not in seen:
                seen.add(join)
                left += (fresh := [child for child in waiting[join] if child not in found])
                found.update(fresh)
    return found


def not_upstream(graph: Graph, layer: Sequence[int], pairs: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    """Of pairs (step, other), those where `other` does not come before `step`. Raises InvalidInput for very many that
    lie far apart.

    Most lie near each other and are found by a short search. The rest is treated in blocks of others in neighbouring
    layers: a number per join and step has a bit for each of them that comes before it.
    """
    wrong: set[tuple[int, int]] = set()
    far: dict[int, list[int]] = {}
    for step, other in set(pairs):
        found = False if layer[other] >= layer[step] else _near(graph, layer, step, other)
        if found is None:
            far.setdefault(other, []).append(step)
            if len(far) > MAX_FAR:
                raise InvalidInput(
                    f"the steps refer to more than {MAX_FAR:,} steps far before them, as {shown(graph.names[step])} "
                    f"does to {shown(graph.names[other])}", field="steps",
                    hint="refer to parents, and let these pass values on",
                )  # fmt: skip
        elif not found:
            wrong.add((step, other))
    if not far:
        return wrong
    order = sorted(range(len(graph.names)), key=layer.__getitem__)
    starts = _starts_of_layers(order, layer)
    targets = sorted(far, key=layer.__getitem__)
    for begin in range(0, len(targets), _TARGETS_AT_ONCE):
        block = targets[begin : begin + _TARGETS_AT_ONCE]
        highest = max(layer[step] for other in block for step in far[other])
        reached = _reached(graph, order[starts[layer[block[0]]] : starts[highest + 1]], block)
        for bit, other in enumerate(block):
            wrong.update((step, other) for step in far[other] if not reached.get(step, 0) >> bit & 1)
    return wrong


def _near(graph: Graph, layer: Sequence[int], step: int, other: int) -> bool | None:
    """Whether `other` comes before `step`. None if that takes a long search."""
    lowest = layer[other]
    seen: set[int] = set()
    left = [step]
    for one in left:  # it grows meanwhile
        parents = graph.parents(one)
        if len(parents) + len(left) > _NEAR:
            return True if other in parents else None
        for parent in parents:
            if parent == other:
                return True
            if layer[parent] > lowest and parent not in seen:
                seen.add(parent)
                left.append(parent)
    return False


def _starts_of_layers(order: Sequence[int], layer: Sequence[int]) -> list[int]:
    """Where each layer begins in `order`, and where the last one ends."""
    starts = [0]
    for place, step in enumerate(order):
        if layer[step] == len(starts):
            starts.append(place)
    return [*starts, len(order)]


def _reached(graph: Graph, order: Sequence[int], block: Sequence[int]) -> dict[int, int]:
    """For each step of `order`, the bits of those in `block` that come before it. Steps without any are left out."""
    own = {other: 1 << bit for bit, other in enumerate(block)}
    behind: dict[int, int] = {}  # the bits of a step and of all before it
    before: dict[int, int] = {}
    joined: dict[int, int] = {}
    for step in order:
        join = graph.waits_for[step]
        bits = 0
        if join is not None:
            found = joined.get(join)
            if found is None:
                found = 0
                for parent in graph.joins[join]:
                    found |= behind.get(parent, 0)
                joined[join] = found
            bits = found
        if bits:
            before[step] = bits
        if bits := bits | own.get(step, 0):
            behind[step] = bits
    return before
