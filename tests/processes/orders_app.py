"""A task with typed parameters, for the test of the SDK on real processes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from mainspring import Mainspring

app = Mainspring()


@dataclass
class Item:
    name: str
    cents: int


@dataclass
class Order:
    id: UUID
    placed: datetime
    items: list[Item]


@app.task("orders.ship", queue="shipping")
def ship(order: Order, within: timedelta, tags: set[str]) -> Order:
    """Receives typed values and returns a result, which is sent as JSON."""
    assert isinstance(order.id, UUID) and isinstance(order.items[0], Item) and tags == {"a", "b"}
    return replace(order, placed=order.placed + within)
