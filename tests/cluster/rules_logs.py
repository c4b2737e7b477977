"""The rule for logs: a stored log is a prefix of the output, and is marked if it is not complete."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.cluster.history import SUCCESS, History, StoredLog
from tests.cluster.tasks import printed

_PRINTS = re.compile(r"prints-(\d+)(?:-cap-(\d+))?\Z")
MARK = "[mainspring: output truncated"


def s12_a_log_is_a_prefix(history: History) -> Iterator[str]:
    ended = {
        (event.new["run_id"], event.new["attempt"]): event.new["state"]
        for event in history.of("run_history")
        if event.op == "I"
    }
    for log in history.logs:
        life = history.runs.get(log.run)
        found = _PRINTS.match(str(life[0].row["name"])) if life else None
        if found is not None:
            yield from _judge(log, int(found[1]), int(found[2] or 0), ended.get((log.run, log.attempt)))


def _judge(log: StoredLog, lines: int, cap: int, state: int | None) -> Iterator[str]:
    whole = printed(log.run, log.attempt, lines)
    head, mark, _ = log.text.partition(MARK)
    where = f"run {log.run}, attempt {log.attempt}"
    kept = head[: log.counted]
    if log.truncated != bool(mark):
        yield f"{where}: the log {'is' if log.truncated else 'is not'} truncated and its text says otherwise"
    if not whole.startswith(kept) or head[log.counted :].strip():
        yield f"{where}: the log is no prefix of what was printed: ...{kept[-80:]!r}"
    elif len(kept) < log.counted:
        yield f"{where}: {log.counted} bytes count, and {len(kept)} are there"
    elif len(kept) < len(whole) and not log.truncated and state == SUCCESS:
        yield f"{where}: succeeded, and only {len(kept)} of {len(whole)} bytes are kept without a mark"
    if cap and len(kept) > cap:
        yield f"{where}: {len(kept)} bytes are kept, and the cap is {cap}"
