"""Narrowed tokens: what a token reaches of its tenant, beside what its role allows.

What lies outside is neither seen nor counted. None of a field means that the token is not narrowed by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

import msgspec

from mainspring.domain.errors import Forbidden, InvalidInput
from mainspring.domain.texts import check_line, shown

_MOST = 100  # names of a kind
_LONGEST = 200

Network = IPv4Network | IPv6Network


class Narrowing(msgspec.Struct, frozen=True, omit_defaults=True):
    """queues, tasks: jobs and runs of these alone. labels: those that have all of these labels. payloads: whether
    payloads, results, variables, headers and output are shown. addresses: the networks from which the token is
    accepted."""

    queues: tuple[str, ...] | None = None
    tasks: tuple[str, ...] | None = None
    labels: dict[str, str] | None = None
    payloads: bool = True
    addresses: tuple[str, ...] | None = None

    @property
    def of_objects(self) -> bool:
        """Whether there are jobs and runs that it does not reach."""
        return self.queues is not None or self.tasks is not None or self.labels is not None

    @property
    def of_queues_alone(self) -> bool:
        return self.queues is not None and self.tasks is None and self.labels is None

    def has_queue(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues

    def has_task(self, task: str) -> bool:
        return self.tasks is None or task in self.tasks

    def has_labels(self, labels: Mapping[str, str] | None) -> bool:
        return self.labels is None or self.labels.items() <= (labels or {}).items()

    def has(self, queue: str, task: str, labels: Mapping[str, str] | None) -> bool:
        """Whether the token reaches such a job or run."""
        return self.has_queue(queue) and self.has_task(task) and self.has_labels(labels)

    def check_inside(self, queue: str, task: str, labels: Mapping[str, str] | None, where: str = "") -> None:
        """Raise Forbidden, with the field, if the token does not reach a job like this. `where`: before the field."""
        if not self.has_queue(queue):
            raise _outside(f"the queue {shown(queue)}", f"{where}queue", f"one of the queues {_names(self.queues)}")
        if not self.has_task(task):
            raise _outside(f"the task {shown(task)}", f"{where}task", f"one of the tasks {_names(self.tasks)}")
        if not self.has_labels(labels):
            wanted = ", ".join(f"{name}={value}" for name, value in sorted((self.labels or {}).items()))
            raise _outside("a job without its labels", f"{where}labels", f"the labels {wanted}")

    def accepts(self, address: str | None) -> bool:
        """Whether a request may come from this address."""
        return self.addresses is None or (address is not None and _is_in(address, self.addresses))

    def is_within(self, other: Narrowing) -> bool:
        """Whether it reaches nothing that the other does not."""
        return (
            _fewer(self.queues, other.queues)
            and _fewer(self.tasks, other.tasks)
            and (other.labels is None or other.labels.items() <= (self.labels or {}).items())
            and (other.payloads or not self.payloads)
            and _inside(self.addresses, other.addresses)
        )


def narrowing_of(
    queues: list[str] | None,
    tasks: list[str] | None,
    labels: Mapping[str, str] | None,
    addresses: list[str] | None,
    *,
    payloads: bool,
) -> Narrowing | None:
    """As it was given with a new token. None if the token is not narrowed."""
    found = Narrowing(
        queues=_checked(queues, "queues"),
        tasks=_checked(tasks, "tasks"),
        labels=_checked_labels(labels),
        payloads=payloads,
        addresses=_checked_networks(addresses),
    )
    return None if found == Narrowing() else found


def _checked(names: list[str] | None, field: str) -> tuple[str, ...] | None:
    if names is None:
        return None
    _check_number(len(names), field)
    for name in names:
        check_line(name, field)
        if not name or len(name) > _LONGEST:
            raise InvalidInput(f"{shown(name)} is no name", field=field, expected=f"1 to {_LONGEST} characters")
    return tuple(dict.fromkeys(names))


def _checked_labels(labels: Mapping[str, str] | None) -> dict[str, str] | None:
    if labels is None:
        return None
    _check_number(len(labels), "labels")
    for name, value in labels.items():
        check_line(name, "labels")
        check_line(value, "labels")
        if not name or len(name) > _LONGEST or len(value) > _LONGEST:
            raise InvalidInput("a label is too long or has no name", field="labels", expected='{"team": "payments"}')
    return dict(labels)


def _checked_networks(addresses: list[str] | None) -> tuple[str, ...] | None:
    if addresses is None:
        return None
    _check_number(len(addresses), "addresses")
    found = []
    for text in addresses:
        try:
            found.append(str(ip_network(text)))
        except ValueError as error:
            raise InvalidInput(
                f"{shown(text)} is not a network: {error}", field="addresses", expected='such as "10.0.0.0/8"'
            ) from None
    return tuple(dict.fromkeys(found))


def _check_number(number: int, field: str) -> None:
    if not 0 < number <= _MOST:
        raise InvalidInput(
            f"{field} has {number} entries", field=field, expected=f"from 1 to {_MOST}", hint="leave it out for all"
        )


@lru_cache(maxsize=1024)
def _networks(addresses: tuple[str, ...]) -> tuple[Network, ...]:
    return tuple(map(ip_network, addresses))


@lru_cache(maxsize=4096)
def _is_in(address: str, addresses: tuple[str, ...]) -> bool:
    """Remembered, because it takes longer than the rest of a request's checks."""
    try:
        peer = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if peer.version == 6 and peer.ipv4_mapped is not None:
        peer = peer.ipv4_mapped
    return any(peer.version == network.version and peer in network for network in _networks(addresses))


def _inside(own: tuple[str, ...] | None, others: tuple[str, ...] | None) -> bool:
    if others is None:
        return True
    if own is None:
        return False
    return all(
        any(one.version == other.version and one.subnet_of(other) for other in _networks(others))  # type: ignore[arg-type]
        for one in _networks(own)
    )


def _fewer(own: tuple[str, ...] | None, others: tuple[str, ...] | None) -> bool:
    return others is None or (own is not None and set(own) <= set(others))


def _names(names: tuple[str, ...] | None) -> str:
    return ", ".join(names or ())


def _outside(what: str, field: str, expected: str) -> Forbidden:
    return Forbidden(
        f"this token does not reach {what}", code="outside_token", field=field, expected=expected,
        hint="use a token that is not narrowed, or change the field",
    )  # fmt: skip
