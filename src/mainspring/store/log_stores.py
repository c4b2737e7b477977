"""Where the output of runs is: the store that gets new output, and those that may have older output."""

from __future__ import annotations

from dataclasses import dataclass

from mainspring.store.log_files import LogFiles
from mainspring.store.log_table import LogTable

LogStore = LogFiles | LogTable


@dataclass(frozen=True, slots=True)
class LogStores:
    written: LogStore
    others: tuple[LogStore, ...] = ()

    @property
    def all(self) -> tuple[LogStore, ...]:
        return self.written, *self.others

    @property
    def files(self) -> list[LogFiles]:
        """Those with objects, which are deleted one by one. PostgreSQL drops the partitions of old days."""
        return [store for store in self.all if isinstance(store, LogFiles)]
