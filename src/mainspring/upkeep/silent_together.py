"""Finds workers of one server that fell silent together. Then the server is the likely cause, and not the workers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from mainspring.store.workers import LastHeard

FEWEST = 5  # workers
SHARE = 0.2  # of the workers of their server


@dataclass(frozen=True, slots=True)
class SilentGroup:
    """Workers of one server. `most` of them fell silent within one beat; `since` and `until` are when the first and the
    last of the group were last heard."""

    server_id: UUID
    since: float
    until: float
    most: int
    worker_ids: frozenset[UUID]

    def is_share_of(self, workers: int) -> bool:
        """Whether it is a fifth of the workers of that server."""
        return self.most >= SHARE * workers


def silent_groups(heard: Iterable[LastHeard], beat: float) -> list[SilentGroup]:
    """Groups in which five or more workers were last heard within one beat. A worker is in one group at most."""
    by_server: dict[UUID, list[LastHeard]] = defaultdict(list)
    for each in heard:
        if each.server_id is not None:
            by_server[each.server_id].append(each)
    return [
        group
        for server_id, workers in by_server.items()
        if len(workers) >= FEWEST
        for group in _groups_of(server_id, sorted(workers, key=lambda each: each.at), beat)
    ]


def _groups_of(server_id: UUID, workers: list[LastHeard], beat: float) -> list[SilentGroup]:
    spans: list[tuple[int, int, int]] = []  # first, end, and the most workers within a beat
    end = 0
    for first, worker in enumerate(workers):
        while end < len(workers) and workers[end].at <= worker.at + beat:
            end += 1
        count = end - first
        if count < FEWEST:
            continue
        if spans and first < spans[-1][1]:
            before = spans.pop()
            spans.append((before[0], end, max(count, before[2])))
        else:
            spans.append((first, end, count))
    return [
        SilentGroup(
            server_id,
            workers[first].at,
            workers[end - 1].at,
            most,
            frozenset(each.worker_id for each in workers[first:end]),
        )
        for first, end, most in spans
    ]
