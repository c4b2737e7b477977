"""What is served under any load: what keeps runs alive, what stops them, and what tells how the server is.

All other operations may be refused for a moment when the server has too much to do.
"""

from __future__ import annotations

URGENT = frozenset(
    {
        "health.live",
        "health.ready",
        "metrics.read",
        "worker.exchange",
        "worker.ship_logs",
        "worker.gone",
        "workers.drain",
        "jobs.cancel",
        "jobs.pause",
        "runs.cancel",
        "tokens.revoke",
        "users.disable",
        "users.remove",
        "user.revoke_token",
        "sessions.end",
    }
)


def is_urgent(operation: str) -> bool:
    """Whether this operation must not be refused."""
    return operation in URGENT
