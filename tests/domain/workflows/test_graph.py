"""The graph of a workflow: layers, cycles, and which steps come before which, against plain searches."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.errors import InvalidInput
from mainspring.domain.workflows import graph as graphs
from mainspring.domain.workflows.graph import Graph, build, downstream, layers, not_upstream


@st.composite
def edges(draw: st.DrawFn, *, acyclic: bool) -> list[set[int]]:
    """The parents of each step."""
    count = draw(st.integers(1, 14))
    return [
        draw(st.sets(st.integers(0, (index if acyclic else count) - 1), max_size=4)) if index or not acyclic else set()
        for index in range(count)
    ]


def built(parents: list[set[int]]) -> Graph:
    return build([f"s{step}" for step in range(len(parents))], [[f"s{one}" for one in some] for some in parents])


def before(parents: list[set[int]], step: int) -> set[int]:
    found: set[int] = set()
    left = [step]
    while left:
        fresh = parents[left.pop()] - found
        found |= fresh
        left += fresh
    return found


@given(edges(acyclic=True), st.booleans())
def test_layers_and_what_comes_before_are_those_of_a_plain_search(parents: list[set[int]], far: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if far:  # also by the numbers with a bit for each step, in several blocks
            patch.setattr(graphs, "_NEAR", 0)
            patch.setattr(graphs, "_TARGETS_AT_ONCE", 3)
        graph = built(parents)
        layer = layers(graph)
        steps = range(len(parents))
        assert layer == [max((layer[parent] + 1 for parent in parents[step]), default=0) for step in steps]
        assert graph.last() == [step for step in steps if all(step not in some for some in parents)]
        pairs = [(step, other) for step in steps for other in steps]
        assert not_upstream(graph, layer, pairs) == {
            (step, other) for step, other in pairs if other not in before(parents, step)
        }
        for start in steps:
            assert downstream(graph, [start]) == {step for step in steps if start in before(parents, step)} | {start}


@given(edges(acyclic=False))
def test_a_cycle_is_found_and_spelled_out(parents: list[set[int]]) -> None:
    graph = built(parents)
    if not any(step in before(parents, step) for step in range(len(parents))):
        assert len(layers(graph)) == len(parents)
        return
    with pytest.raises(InvalidInput) as caught:
        layers(graph)
    assert caught.value.code == "cycle"
    shown = caught.value.detail.partition(": ")[2]
    if "more)" in shown:
        return
    cycle = [int(number) for number in re.findall(r"s(\d+)", shown)]
    assert cycle[0] == cycle[-1]
    assert all(earlier in parents[later] for earlier, later in pairwise(cycle))
    assert caught.value.field == f"steps[{cycle[0]}].depends_on"


def test_steps_with_the_same_parents_share_a_join() -> None:
    names = [f"{layer}.{step}" for layer in range(20) for step in range(20)]
    depends_on = [
        [f"{layer - 1}.{one}" for one in range(20)] if layer else [] for layer in range(20) for _ in range(20)
    ]
    graph = build(names, depends_on)
    assert (len(graph.joins), graph.edges) == (19, 19 * 400)
    assert layers(graph) == [layer for layer in range(20) for _ in range(20)]


def test_a_long_cycle_is_shortened_and_a_long_chain_is_checked() -> None:
    names = [f"s{step}" for step in range(20_000)]
    chain = [[names[step - 1]] if step else [] for step in range(len(names))]
    assert max(layers(build(names, chain))) == len(names) - 1
    assert len(downstream(build(names, chain), [1])) == len(names) - 1
    with pytest.raises(InvalidInput, match=r"s0 > s1 > .* \(19988 more\) > .* > s19999 > s0\. "):
        layers(build(names, [[names[-1]], *chain[1:]]))
