"""What a message says: what, where, why, since when, how often, and where to look."""

from __future__ import annotations

from datetime import datetime

import msgspec

from mainspring.domain.run_key import rfc3339
from mainspring.wire.notifications import MessageItem

SHOWN_ITEMS = 10  # of one message; of the others only the number is told
_LONGEST_REASON = 300
_LONGEST_SUBJECT = 200
_LONGEST_LINE = 300  # of output
RECOVERED = "recovered"
TEST = "test"

# What an event is called in a message.
TITLES = {
    "failure": "failed",
    "first_failure": "failed",
    "every_failure": "failed",
    "tries_exhausted": "failed after its last attempt",
    RECOVERED: "recovered",
    "success": "succeeded",
    "fire_missed": "missed fires",
    "started_late": "started late",
    "ran_too_long": "runs too long",
    "deadline_missed": "missed its deadline",
    "worker_lost": "was lost",
    "breaker_opened": "has an open circuit breaker",
    "breaker_closed": "has a closed circuit breaker again",
    "backfill_ended": "has ended",
    "operation_ended": "has ended",
    "success_rate_below": "succeeds too rarely",
    "retries_above": "retries too often",
    "dead_letters_above": "has too many dead letters",
    "queue_behind": "is behind",
    "no_worker": "has runs and no worker",
    "quota_near": "is near a quota",
    "lag_above": "starts runs late",
    "pause_forgotten": "has pauses that were forgotten",
    "never_ran": "has jobs that never ran",
    "always_fails": "has jobs that always fail",
    "clocks_differ": "has clocks that differ",
    "database_near_limit": "has a database near its limits",
    "scheduler_failover": "was replaced by another one",
    "approval_waits": "waits for an approval",
    TEST: "works",
}
# What to do about an event: pages of docs/runbooks.
RUNBOOKS = {
    "failure": "jobs-stuck.md",
    "first_failure": "jobs-stuck.md",
    "every_failure": "jobs-stuck.md",
    "tries_exhausted": "replay-after-an-incident.md",
    "fire_missed": "replay-after-an-incident.md",
    "worker_lost": "worker-lost.md",
    "breaker_opened": "jobs-stuck.md",
    "success_rate_below": "replay-after-an-incident.md",
    "retries_above": "jobs-stuck.md",
    "dead_letters_above": "replay-after-an-incident.md",
    "queue_behind": "queue-behind.md",
    "no_worker": "queue-behind.md",
    "quota_near": "capacity.md",
    "lag_above": "it-is-slow.md",
    "pause_forgotten": "jobs-stuck.md",
    "never_ran": "jobs-stuck.md",
    "always_fails": "jobs-stuck.md",
    "approval_waits": "jobs-stuck.md",
    "clocks_differ": "it-is-slow.md",
    "database_near_limit": "database-full.md",
    "scheduler_failover": "failover.md",
    "started_late": "queue-behind.md",
    "ran_too_long": "it-is-slow.md",
    "deadline_missed": "it-is-slow.md",
}
_RUNBOOKS_FOLDER = "docs/runbooks"
GOOD = frozenset({RECOVERED, "success", "breaker_closed", "backfill_ended", "operation_ended", TEST})


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message of a rule. items: the first of them. more: how many others there are. group: the same for all messages
    of a rule, so that pagers know which alert a message belongs to. escalated: an earlier message was not
    acknowledged. output: the last lines of runs by their ids, for channels that want them; it is not stored."""

    id: str
    tenant: str
    group: str
    created_at: datetime
    items: list[MessageItem]
    more: int = 0
    rule: str | None = None
    url: str | None = None
    escalated: bool = False
    output: dict[str, list[str]] = {}

    @property
    def good(self) -> bool:
        """Whether it tells no trouble."""
        return all(item.event in GOOD for item in self.items)


def one_line(text: str, most: int) -> str:
    """The text without line breaks and control characters, so that it cannot begin a header or a line of its own."""
    plain = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return plain if len(plain) <= most else plain[: most - 1] + "…"


def title_of(message: Message) -> str:
    """One line: `job nightly failed (3 times)`."""
    first, others = message.items[0], len(message.items) - 1 + message.more
    times = f" ({first.count:,} times)" if first.count > 1 else ""
    more = f" and {others:,} more" if others else ""
    what = TITLES.get(first.event, first.event)
    still = "still " if first.reminder and first.event not in GOOD else ""
    escalated = "not acknowledged: " if message.escalated else ""
    return f"{escalated}{one_line(first.subject, _LONGEST_SUBJECT)} {still}{what}{times}{more}"


def text_of(message: Message) -> str:
    """The message as plain text, a paragraph for each item."""
    lines = [title_of(message), ""]
    for item in message.items:
        lines += [*_item_lines(item, message.url), *_output_lines(item, message), ""]
    if message.more:
        lines += [f"and {message.more:,} more", ""]
    where = f"tenant {message.tenant}" + (f", rule {message.rule}" if message.rule else "")
    return "\n".join([*lines, f"Mainspring, {where}"])


def runbook_of(event: str) -> str | None:
    """The page that says what to do about an event, as a path in the repository. None if it is no trouble."""
    page = RUNBOOKS.get(event)
    return None if page is None else f"{_RUNBOOKS_FOLDER}/{page}"


def link_to(base: str | None, path: str | None) -> str | None:
    return None if base is None or path is None else f"{base.rstrip('/')}{path}"


def output_of(item: MessageItem, message: Message) -> list[str]:
    """The last lines of the run, without control characters."""
    return [one_line(line, _LONGEST_LINE) for line in message.output.get(item.run_id or "", ())]


def _output_lines(item: MessageItem, message: Message) -> list[str]:
    lines = output_of(item, message)
    return ["  output:", *(f"  | {line}" for line in lines)] if lines else []


def _item_lines(item: MessageItem, base: str | None) -> list[str]:
    what = TITLES.get(item.event, item.event)
    still = "still " if item.reminder and item.event not in GOOD else ""
    found = [f"{one_line(item.subject, _LONGEST_SUBJECT)} {still}{what}"]
    if item.reason:
        found.append(f"  why: {one_line(item.reason, _LONGEST_REASON)}")
    times = f", {item.count:,} times" if item.count > 1 else ""
    found.append(f"  since: {rfc3339(item.since)}{times}")
    if where := ", ".join(f"{name} {value}" for name, value in (("task", item.task), ("queue", item.queue)) if value):
        found.append(f"  where: {one_line(where, _LONGEST_SUBJECT)}")
    if (link := link_to(base, item.path)) is not None:
        found.append(f"  {link}")
    elif item.path is not None:
        found.append(f"  page: {item.path}")
    if (runbook := runbook_of(item.event)) is not None:
        found.append(f"  what to do: {runbook}")
    return found
