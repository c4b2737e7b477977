"""Clients that use the cluster during the faults and record every call: ok, refused or unknown."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from mainspring.worker.processes.watchdog.namespaces import why_not
from tests.cluster import load_flows, load_limits, load_schedules
from tests.cluster.history import Call
from tests.cluster.line_book import SET
from tests.cluster.load_events import EventLoad
from tests.cluster.rules_flows import CANCEL_FLOW
from tests.cluster.tasks import LEDGER_VARIABLE, family_command, shell_command

NAMESPACES = why_not() is None  # workers here put each command into a pid namespace of its own
OVERLOADED = 429
_REPEATS = 40
_PAUSE_BETWEEN = 0.25
_EVERY_SECOND = "* * * * * *"
# Recurring jobs by their job_id, with different schedules and misfire policies.
RECURRING: dict[str, dict[str, Any]] = {
    "each-second-all": {"schedule": _EVERY_SECOND, "overlap": "allow", "misfire": {"policy": "all"}},
    "each-second-once": {"schedule": _EVERY_SECOND, "overlap": "allow"},
    "each-second-skip": {"schedule": _EVERY_SECOND, "overlap": "allow", "misfire": {"policy": "skip"}},
    "every-2s": {"schedule": {"every": "2s"}, "overlap": "allow", "misfire": {"policy": "all", "cap": 3}},
    "in-berlin": {"schedule": "*/3 * * * * *", "timezone": "Europe/Berlin", "misfire": {"grace": "20s"}},
    "one-at-a-time": {"schedule": _EVERY_SECOND, "payload": {"seconds": 1.4}},
    **load_limits.RECURRING,
    **load_schedules.RECURRING,
}
STEERED = ("each-second-once", "in-berlin")
# Schedules that jobs are changed to.
_SCHEDULES: tuple[Any, ...] = (_EVERY_SECOND, "*/2 * * * * *", {"every": "1s"}, {"every": "1500ms"}, "*/3 * * * * *")


SetLimit = Callable[[str, int], Awaitable[Any]]  # the name of a limit, and how many runs at once


class Clients:
    """Calls and their log."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self.calls: list[Call] = []

    async def call(
        self, verb: str, method: str, path: str, body: dict[str, Any] | None = None, target: str = ""
    ) -> Call:
        """Send a call once. After a lost response or a 5xx it is unknown whether it had an effect."""
        call = Call(verb, target, body or {}, time.monotonic())
        self.calls.append(call)
        try:
            answer = await self._http.request(method, path, json=body)
        except httpx.TransportError:
            call.ended = time.monotonic()
            return call
        call.ended, call.status = time.monotonic(), answer.status_code
        if answer.status_code < 500:
            call.result = "ok" if answer.status_code < 300 else "refused"
            call.answer = answer.json()
        return call

    async def insist(self, *arguments: Any, **named: Any) -> Call:
        """Repeat a call until the result is known. A server that has just been stopped may have too much to do."""
        for _ in range(_REPEATS):
            call = await self.call(*arguments, **named)
            if call.result != "unknown" and call.status != OVERLOADED:
                return call
            await asyncio.sleep(_PAUSE_BETWEEN)
        return call

    async def submit(self, body: dict[str, Any]) -> Call:
        return await self.insist("submit", "POST", "/v1/jobs", body, target=body.get("job_id", ""))

    async def steer(self, job_id: str, verb: str) -> Call:
        return await self.insist(verb, "POST", f"/v1/jobs/{job_id}:{verb}", target=job_id)

    async def cancel(self, job_id: str) -> Call:
        return await self.insist("cancel", "DELETE", f"/v1/jobs/{job_id}", target=job_id)

    async def change(self, job_id: str, body: dict[str, Any]) -> Call:
        return await self.insist("change", "PATCH", f"/v1/jobs/{job_id}", body, target=job_id)


class Load:
    """A mix of all calls with `rate` submissions per second, until it is stopped."""

    def __init__(
        self, clients: Clients, ledger: Path, seed: int, rate: float = 12.0, set_limit: SetLimit | None = None
    ) -> None:
        self._clients = clients
        self._ledger = ledger
        self._random = random.Random(seed)
        self._rate = rate
        self._set_limit = set_limit
        self._number = 0
        self._submitted: list[str] = []
        self._busy: set[asyncio.Task[Any]] = set()
        self._over = asyncio.Event()
        self._events = EventLoad(clients, random.Random(seed), self._over_after)

    async def start(self) -> None:
        await self._change_rules()
        for job_id, body in RECURRING.items():
            keyed = {"task": "note", "job_id": job_id, "idempotency_key": job_id, **body}
            call = await self._clients.submit(keyed)
            assert call.result == "ok", call
        for name in load_flows.FLOWS:
            call = await self._clients.insist("workflow", "POST", "/v1/workflows", load_flows.definition(name))
            assert call.result == "ok" or call.answer.get("code") == "job_exists", call
        for number, name in enumerate(load_flows.FLOWS):  # one of each, however slow the machine is
            body = {"idempotency_key": f"first-{number}", "parameters": {"seconds": 0}}
            await self._clients.insist("workflow run", "POST", f"/v1/workflows/{name}:runNow", body, target=name)
        await self._events.start()
        self._go(self._run())
        self._go(self._events.wait(0))
        self._go(self._events.steer())
        self._go(self._steer())
        self._go(self._redefine())
        self._go(self._declare_again())
        self._go(self._reuse())
        self._go(self._change_overlap())
        self._go(self._change_limit())
        self._go(self._end_strict_order())
        await self._clients.insist(SET, "PUT", f"/v1/queues/{load_limits.NARROW}", {"concurrency": 2})
        self._go(self._change_gate())
        self._go(self._change_calendar())
        self._go(self._count())
        self._go(self._backfill())

    async def stop(self) -> None:
        """Submit no more jobs and pause the recurring ones. Returns when every call is answered."""
        self._over.set()
        while self._busy:
            await asyncio.gather(*self._busy)
        await self._clients.insist(SET, "POST", f"/v1/queues/{load_limits.NARROW}:resume")
        await self._events.stop()
        for job_id in RECURRING:
            call = await self._clients.steer(job_id, "pause")
            assert call.result == "ok", call

    async def _run(self) -> None:
        while not await self._over_after(self._random.expovariate(self._rate)):
            if len(self._busy) < 40:  # send no more calls while the servers do not answer
                self._go(self._one())

    async def _over_after(self, seconds: float) -> bool:
        """Pause for `seconds`. True if the load should stop. No call is interrupted."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), seconds)
        return self._over.is_set()

    def _go(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)

    async def _one(self) -> None:
        self._number += 1
        choices: list[tuple[int, Callable[[int], Any]]] = [
            (50, self._now), (12, self._at), (10, self._failing), (8, self._at_most_once), (6, self._shell),
            (5, self._thread), (3, self._bad), (3, self._same_key_other_body), (6, self._cancel_one),
            (4, self._family), (5, self._process), (6, self._print), (1, self._poison), (3, self._snooze),
            (5, self._again), (4, self._retry_one), (30, self._limited), (12, self._unique),
            (10, self._workflow), (10, self._events.emit), (6, self._events.wait),
        ]  # fmt: skip
        weights = [weight for weight, _ in choices]
        await self._random.choices([choice for _, choice in choices], weights)[0](self._number)

    async def _submit(self, number: int, **body: Any) -> Call:
        call = await self._clients.submit({"idempotency_key": f"key-{number}", **body})
        if call.result == "ok":
            self._submitted.append(call.answer["job_id"])
        return call

    async def _now(self, number: int) -> None:
        await self._submit(
            number, task="note", payload={"seconds": round(self._random.choice((0, 0, 0.05, 0.3, 2.0)), 2)}
        )

    async def _at(self, number: int) -> None:
        when = datetime.now(UTC) + timedelta(seconds=self._random.uniform(0.2, 4))
        call = await self._submit(number, task="note", schedule={"at": when.isoformat()})
        if call.result != "ok":
            return
        job_id, chance = call.answer["job_id"], self._random.random()
        if chance < 0.2:  # its own fire must not run beside this one
            await self._clients.steer(job_id, "runNow")
        elif chance < 0.5:  # about when it is due
            await self._over_after(max(0.0, (when - datetime.now(UTC)).total_seconds() - 0.01))
            later = when + timedelta(seconds=2)
            await self._clients.change(job_id, {"schedule": {"at": later.isoformat()}})

    async def _failing(self, number: int) -> None:
        failures = self._random.choice((1, 2, 9))
        retry = {"max_attempts": 3, "backoff": "constant", "base": "200ms"}
        await self._submit(number, task="note", payload={"failures": failures}, retry=retry)

    async def _at_most_once(self, number: int) -> None:
        await self._submit(number, task="note", payload={"seconds": 1.0}, delivery="at_most_once")

    async def _shell(self, number: int) -> None:
        await self._submit(number, command=shell_command(str(self._ledger), self._random.randint(0, 20)))

    async def _thread(self, number: int) -> None:
        await self._submit(number, task="note.thread", payload={"seconds": 0.5})

    async def _family(self, number: int) -> None:
        """A run with processes that leave their process group or ignore SIGTERM. Every second run is cancelled. Every
        third attacks its supervisor, where namespaces protect that; elsewhere it would end the runs of others."""
        hostile = self._random.random() < 0.33 and NAMESPACES
        command = family_command(str(self._ledger), self._random.randint(3, 20), hostile=hostile)
        call = await self._submit(number, name="family", command=command, kill_grace="1s", timeout="30s")
        if call.result == "ok" and self._random.random() < 0.5:
            await self._over_after(self._random.uniform(0.0, 1.5))
            await self._clients.cancel(call.answer["job_id"])

    async def _process(self, number: int) -> None:
        payload = {"seconds": self._random.choice((0, 0.2, 1.0)), "end_badly": self._random.random() < 0.2}
        env = {LEDGER_VARIABLE: str(self._ledger)}
        await self._submit(number, task="note.process", payload=payload, env=env)

    async def _poison(self, number: int) -> None:
        """A run that ends its worker. Its second attempt ends only itself."""
        env = {LEDGER_VARIABLE: str(self._ledger)}
        retry = {"max_attempts": 3, "backoff": "constant", "base": "200ms"}
        payload = {"attempts": self._random.choice((1, 2, 9))}
        await self._submit(number, task="note.poison", payload=payload, env=env, retry=retry)

    async def _snooze(self, number: int) -> None:
        """A run that comes back later. It has one attempt, which no snooze uses."""
        await self._submit(number, task="note.snooze", payload={"times": self._random.randint(1, 3)}, retries=0)

    async def _print(self, number: int) -> None:
        lines, cap = self._random.choice((1, 100, 2000)), self._random.choice((0, 0, 500))
        name = f"prints-{lines}" + (f"-cap-{cap}" if cap else "")
        body: dict[str, Any] = {"limits": {"output": cap}} if cap else {}
        payload = {"lines": lines, "pause": self._random.choice((0, 0.05))}
        await self._submit(number, task="note.print", name=name, payload=payload, **body)

    async def _bad(self, number: int) -> None:
        name = f"refused-{number}"
        await self._submit(number, task="note", name=name, schedule="61 * * * *")

    async def _same_key_other_body(self, number: int) -> None:
        first = await self._submit(number, task="note", payload={"seconds": 0})
        other = await self._submit(number, task="note", name=f"refused-{number}", payload={"seconds": 0.01})
        assert first.result == "unknown" or other.result != "ok", (first, other)

    async def _cancel_one(self, number: int) -> None:
        """Cancel a run that was just submitted, or one that may be running or ended."""
        await self._submit(number, task="note", payload={"seconds": 1.5})
        if self._submitted:
            await self._clients.cancel(self._random.choice(self._submitted[-10:]))

    async def _again(self, number: int) -> None:
        """Run a job by hand under a key, a second time with another payload."""
        job_id = self._random.choice([*RECURRING, *self._submitted[-10:]])
        body = {"idempotency_key": f"again-{number}", "payload": {"seconds": self._random.choice((0, 0.3))}}
        for more in ({}, {}, {"payload": {"seconds": 0.1}}):
            await self._clients.insist("runNow", "POST", f"/v1/jobs/{job_id}:runNow", {**body, **more}, target=job_id)

    async def _retry_one(self, number: int) -> None:
        """Repeat a run that has probably ended with success."""
        if self._submitted:
            run_id = self._random.choice(self._submitted)
            await self._clients.call("retry", "POST", f"/v1/runs/{run_id}:retry", target=run_id)

    async def _steer(self) -> None:
        """Pause and resume jobs, and change misfire policies, at intervals."""
        while not await self._over_after(self._random.uniform(2, 5)):
            job_id = self._random.choice(STEERED)
            await self._clients.steer(job_id, "pause")
            await self._over_after(self._random.uniform(0.5, 4))
            if job_id != "in-berlin" and self._random.random() < 0.5:
                await self._clients.change(job_id, {"schedule": self._random.choice(_SCHEDULES)})
            if self._random.random() < 0.5:
                policy = self._random.choice(("skip", "once", "all"))
                await self._clients.change(job_id, {"misfire": {"policy": policy}})
            await self._clients.steer(job_id, "resume")

    async def _redefine(self) -> None:
        """Change jobs again and again while they fire, and delete them."""
        number = 0
        while not self._over.is_set():
            number += 1
            job_id = f"redefined-{number}"
            body = {"task": "note", "job_id": job_id, "idempotency_key": job_id, "overlap": "allow"}
            call = await self._clients.submit({**body, "schedule": self._random.choice(_SCHEDULES)})
            if call.result != "ok":
                await self._over_after(1.0)
                continue
            for _ in range(self._random.randint(2, 12)):
                if await self._over_after(self._random.uniform(0.05, 1.2)):
                    break
                change: dict[str, Any] = {"schedule": self._random.choice(_SCHEDULES)}
                if self._random.random() < 0.4:
                    change = {"misfire": {"policy": self._random.choice(("skip", "once", "all"))}}
                await self._clients.change(job_id, change)
            await self._clients.cancel(job_id)
            if self._random.random() < 0.4:
                await self._over_after(self._random.uniform(0.0, 3.0))
                await self._clients.steer(job_id, "resume")
                await self._over_after(self._random.uniform(0.0, 2.0))
                await self._clients.cancel(job_id)

    async def _declare_again(self) -> None:
        """Send schedules again while they fire, as every deployment does, and change their jitter."""
        jitters: dict[str, str | None] = dict.fromkeys(load_schedules.DECLARED)
        while not await self._over_after(self._random.uniform(0.05, 0.5)):
            job_id = self._random.choice(sorted(jitters))
            method, body, jitters[job_id] = load_schedules.declared(self._random, job_id, jitters[job_id])
            call = await self._clients.insist("change", method, f"/v1/jobs/{job_id}", body, target=job_id)
            assert call.result != "refused" or call.status == OVERLOADED, call

    async def _reuse(self) -> None:
        """Create jobs with the same few ids again and again, sometimes before the old one has ended."""
        ids = ("reused-0", "reused-1", "reused-2")
        number = 0
        while not self._over.is_set():
            number += 1
            job_id = self._random.choice(ids)
            soon = datetime.now(UTC) + timedelta(seconds=self._random.uniform(-1, 1))
            body = {"task": "note", "job_id": job_id, "idempotency_key": f"reused-{number}", "overlap": "allow"}
            schedule = self._random.choice(("now", "now", {"at": soon.isoformat()}, *_SCHEDULES))
            seconds = self._random.choice((0, 0, 0.4))
            call = await self._clients.submit({**body, "schedule": schedule, "payload": {"seconds": seconds}})
            await self._over_after(self._random.uniform(0.0, 1.2))
            if call.result == "refused" or self._random.random() < 0.3:
                await self._clients.cancel(job_id)
        for job_id in ids:
            await self._clients.cancel(job_id)

    async def _limited(self, number: int) -> None:
        """A run with limits. Some are cancelled while they are HELD, QUEUED or running."""
        call = await self._submit(number, **load_limits.limited_job(self._random))
        if call.result == "ok" and self._random.random() < 0.15:
            await self._over_after(self._random.choice((0.0, 0.0, 0.3)))
            await self._clients.cancel(call.answer["job_id"])

    async def _unique(self, number: int) -> None:
        """Two jobs with the same key at once, or about when the first one ends."""
        body = load_limits.unique_job(self._random)
        pause = self._random.choice((0.0, 0.0, 0.1, 0.6))
        first = asyncio.ensure_future(self._submit(number, **body))
        await self._over_after(pause)
        await asyncio.gather(first, self._clients.submit({"idempotency_key": f"second-{number}", **body}))

    async def _workflow(self, number: int) -> None:
        """A workflow run. Some are cancelled, and some run again when they have ended."""
        name = self._random.choice(sorted(load_flows.FLOWS))
        chosen = load_flows.parameters(self._random, name)
        body = {"idempotency_key": f"flow-{number}", "parameters": chosen}
        call = await self._clients.insist("workflow run", "POST", f"/v1/workflows/{name}:runNow", body, target=name)
        chance = self._random.random()
        if call.result != "ok" or chance > 0.5:
            return
        run_id = call.answer["run_id"]
        await self._over_after(self._random.uniform(0.0, 2.0))
        if chance < 0.2:
            await self._clients.insist(CANCEL_FLOW, "POST", f"/v1/workflow-runs/{run_id}:cancel", {}, target=run_id)
            await self._over_after(self._random.uniform(0.0, 2.0))
        await self._clients.call("rerun", "POST", f"/v1/workflow-runs/{run_id}:rerun", {}, target=run_id)

    async def _change_overlap(self) -> None:
        """Change what happens when a job fires while a run of it is alive."""
        while not await self._over_after(self._random.uniform(0.3, 2)):
            job_id = self._random.choice(sorted(load_limits.CHANGED_RULES))
            rule = self._random.choice(load_limits.CHANGED_RULES[job_id])
            await self._clients.change(job_id, {"overlap": rule})

    async def _change_limit(self) -> None:
        """Raise and lower a limit while runs are held."""
        while self._set_limit is not None and not await self._over_after(self._random.uniform(1, 5)):
            number = self._random.choice((1, 2, 3, 5))
            found = await self._clients.call("limits", "GET", f"/v1/limits?q={load_limits.CHANGED_LIMIT}")
            listed = found.answer.get("limits") if self._random.random() < 0.5 else None
            if listed:
                await self._clients.call(SET, "PUT", f"/v1/limits/{listed[0]['limit_id']}", {"limit": number})
            else:
                await self._set_limit(load_limits.CHANGED_LIMIT, number)

    async def _end_strict_order(self) -> None:
        """Jobs declare it again."""
        while not await self._over_after(self._random.uniform(1, 4)):
            found = await self._clients.call("limits", "GET", f"/v1/limits?q={load_limits.CHANGED_ORDER}")
            for limit in found.answer.get("limits", ()):
                loose = {"limit": None, "order": "priority"}
                await self._clients.call(SET, "PUT", f"/v1/limits/{limit['limit_id']}", loose)

    async def _change_gate(self) -> None:
        """Change the limit of a queue while its runs wait and run, and pause it for a moment."""
        path = f"/v1/queues/{load_limits.NARROW}"
        while not await self._over_after(self._random.uniform(1, 4)):
            if self._random.random() < 0.6:
                await self._clients.insist(SET, "PUT", path, {"concurrency": self._random.choice((1, 2, 4))})
                continue
            await self._clients.insist(SET, "POST", f"{path}:pause")
            await self._over_after(self._random.uniform(0.2, 2))
            await self._clients.insist(SET, "POST", f"{path}:resume")

    async def _change_rules(self) -> Call:
        rules = load_schedules.rules(self._random)
        return await self._clients.insist(SET, "PUT", f"/v1/calendars/{load_schedules.CALENDAR}", rules)

    async def _change_calendar(self) -> None:
        """Next fires follow a calendar while its job fires."""
        while not await self._over_after(self._random.uniform(0.5, 3)):
            await self._change_rules()

    async def _count(self) -> None:
        """Jobs that end after some runs. The number is changed while they fire, and they are paused and cancelled."""
        number = 0
        while not await self._over_after(self._random.uniform(0.1, 0.5)):
            number += 1
            job_id = f"counted-{number}"
            body = {"task": "note", "job_id": job_id, "idempotency_key": job_id}
            await self._clients.submit({**body, **load_schedules.counted(self._random)})
            for _ in range(self._random.randint(1, 4)):
                await self._over_after(self._random.uniform(0.2, 2.0))
                if self._random.random() < 0.6:
                    most = self._random.randint(1, 8)
                    await self._clients.change(job_id, {"schedule": {"max_runs": most}})
                else:
                    await self._clients.steer(job_id, "pause")
                    await self._over_after(self._random.uniform(0.0, 1.5))
                    await self._clients.steer(job_id, "resume")
            await self._clients.cancel(job_id)

    async def _backfill(self) -> None:
        """Make up for fires of the last seconds. Some backfills are paused or cancelled meanwhile."""
        while not await self._over_after(self._random.uniform(0.5, 3)):
            job_id = self._random.choice(load_schedules.BACKFILLED)
            body = load_schedules.range_of_a_backfill(self._random)
            call = await self._clients.call("backfill", "POST", f"/v1/jobs/{job_id}:backfill", body)
            if call.result != "ok" or self._random.random() < 0.5:
                continue
            path = f"/v1/backfills/{call.answer['id']}"
            await self._clients.insist("backfill", "POST", f"{path}:pause")
            await self._clients.insist("backfill", "PATCH", path, {"concurrency": self._random.choice((1, 2, 5))})
            await self._over_after(self._random.uniform(0.0, 1.0))
            verb = self._random.choice(("resume", "resume", "cancel"))
            await self._clients.insist("backfill", "POST", f"{path}:{verb}")
