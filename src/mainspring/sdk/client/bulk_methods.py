"""The methods of the clients that are about one verb on many objects."""

from __future__ import annotations

from mainspring.sdk.client import calls
from mainspring.sdk.client.methods import awaited, awaited_search, blocking, blocking_search


class BulkMethods:
    """Operations, for `Client`."""

    count_matching = blocking(lambda: calls.count_matching)
    act_on_many = blocking(lambda: calls.act_on_many)
    operation = blocking(lambda: calls.operation)
    operations = blocking(lambda: calls.operations)
    cancel_operation = blocking(lambda: calls.cancel_operation)
    missed_fires = blocking_search(lambda: calls.missed_fires)


class AsyncBulkMethods:
    """The methods of `BulkMethods` for `AsyncClient`."""

    count_matching = awaited(lambda: calls.count_matching)
    act_on_many = awaited(lambda: calls.act_on_many)
    operation = awaited(lambda: calls.operation)
    operations = awaited(lambda: calls.operations)
    cancel_operation = awaited(lambda: calls.cancel_operation)
    missed_fires = awaited_search(lambda: calls.missed_fires)
