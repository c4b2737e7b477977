"""The number of files that a process may open (RLIMIT_NOFILE): raised for us, and given back to what we start.

The soft limit is often 1,024, for the sake of programs that use select() or close every possible descriptor. Such
programs may be among the commands of runs, so they get the soft limit that this process was started with.
"""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from dataclasses import dataclass

# For what is no client: PostgreSQL (at most 20), logs (at most 40 at once), listeners, loop, output. And for 16 clients
# more than fit, who are told so.
RESERVED = 128
_LEAST_RESERVED = 64
_ENDLESS = 1_048_576  # stands for "no limit"

_original: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Descriptors:
    """`before` is the soft limit that the process was started with, and `now` the present one."""

    before: int
    now: int

    @property
    def for_connections(self) -> int:
        """How many connections of clients fit, with descriptors reserved for everything else."""
        reserved = max(_LEAST_RESERVED, min(RESERVED, self.now // 4))
        return max(1, self.now - reserved)


def raise_limit(most: int | None = None) -> Descriptors:
    """Raise the soft limit to the hard limit, or to `most`. It stays as it is where the system refuses."""
    global _original
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _original is None:
        _original = (soft, hard)
    wanted = _number(hard) if most is None else min(_number(hard), most)
    if wanted > _number(soft):
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return Descriptors(_number(soft), _number(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))


def give_back(pid: int) -> None:
    """Give a new child the soft limit that this process was started with."""
    if _original is not None and sys.platform == "linux":
        with suppress(ProcessLookupError, PermissionError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, _original)


def _number(limit: int) -> int:
    return _ENDLESS if limit == resource.RLIM_INFINITY else limit
