"""The methods of the clients that are about one verb on many objects."""

from __future__ import annotations

from mainspring.sdk.client import calls
from mainspring.sdk.client.methods import awaited, awaited_search, blocking, blocking_search


class BulkMethods:
    """Operations, for `Client`."""

    count_matching = blocking(calls.count_matching)
    act_on_many = blocking(calls.act_on_many)
    operation = blocking(calls.operation)
    operations = blocking(calls.operations)
    cancel_operation = blocking(calls.cancel_operation)
    missed_fires = blocking_search(calls.missed_fires)


class AsyncBulkMethods:
    """The methods of `BulkMethods` for `AsyncClient`."""

    count_matching = awaited(calls.count_matching)
    act_on_many = awaited(calls.act_on_many)
    operation = awaited(calls.operation)
    operations = awaited(calls.operations)
    cancel_operation = awaited(calls.cancel_operation)
    missed_fires = awaited_search(calls.missed_fires)
