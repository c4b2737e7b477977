"""Lets time pass: everything that was written becomes older."""

from __future__ import annotations

import asyncpg

_TIMES = {
    "run_history": ("ended_at",),
    "missed_fires": ("recorded_at",),
    "notification_watermark": ("seen_until",),
    "alerts": ("opened_at", "last_at", "told_at", "closed_at", "acknowledged_at", "escalated_at", "due_at"),
    "alert_groups": ("told_at",),
    "notifications": ("next_at", "created_at", "ended_at"),
    "rules": ("muted_until",),
    "notable_events": ("happened_at",),
}


async def age(connection: asyncpg.Connection, seconds: float) -> None:
    for table, columns in _TIMES.items():
        changes = ", ".join(f"{column} = {column} - $1 * interval '1 second'" for column in columns)
        await connection.execute(f"update mainspring.{table} set {changes}", seconds)
