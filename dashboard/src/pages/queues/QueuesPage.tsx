import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { change } from "../../api/client";
import { queuesQuery } from "../../api/queries";
import type { QueueView } from "../../api/schema";
import { count, duration, rate } from "../../lib/format";
import { Button } from "../../ui/Button";
import { Confirm } from "../../ui/Dialog";
import { Field } from "../../ui/Field";
import { Filters, TextFilter } from "../../ui/Filters";
import { Card, Empty, Page, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { StateMark } from "../../ui/StateMark";
import { type Column, Table } from "../../ui/Table";
import { say } from "../../ui/Toasts";

type Verb = { kind: "pause" | "resume" | "limits"; queue: QueueView };

export function QueuesPage() {
  const queues = useQuery(queuesQuery);
  const [verb, setVerb] = useState<Verb | null>(null);
  const { q = "" } = useSearch({ from: "/queues" });
  const shown = (queues.data?.queues ?? []).filter((queue) => queue.name.toLowerCase().includes(q.toLowerCase()));
  return (
    <Page title="Queues" lead="Lines of work: how many runs wait, for how long, and whether workers keep up.">
      <Filters active={q === "" ? [] : ["q"]}>
        <TextFilter name="q" value={q || undefined} label="Part of a name" wide />
      </Filters>
      <Card flush>
        {queues.isPending ? (
          <Skeleton />
        ) : queues.data === undefined ? (
          <ProblemBox error={queues.error} retry={() => void queues.refetch()} />
        ) : queues.data.queues.length === 0 ? (
          <Empty title="No queue yet" command="mainspring submit --command 'echo hello' --queue mail">
            A queue exists as soon as a job or a worker names it.
          </Empty>
        ) : shown.length === 0 ? (
          <Empty title="No queue matches.">Clear the filter to see all queues.</Empty>
        ) : (
          <Table label="Queues" columns={columns(setVerb)} rows={shown} rowKey={(queue) => queue.name} />
        )}
      </Card>
      {verb?.kind === "limits" ? <Limits queue={verb.queue} onClose={() => setVerb(null)} /> : null}
      {verb !== null && verb.kind !== "limits" ? <PauseOrResume verb={verb} onClose={() => setVerb(null)} /> : null}
    </Page>
  );
}

/** A number of runs, as a link to them. Nothing to see is muted. */
function RunsIn({ queue, status, number, unit }: { queue: QueueView; status: string; number: number; unit?: string }) {
  const words = unit ? <span className="onPhone"> {unit}</span> : null;
  if (number === 0) return <span className="muted">0{words}</span>;
  return (
    <Link to="/runs" search={{ queue: queue.name, status }}>
      {count(number)}
      {words}
    </Link>
  );
}

function columns(setVerb: (verb: Verb) => void): Column<QueueView>[] {
  return [
    {
      key: "name", head: "Queue", phone: "first", grow: true,
      cell: (queue) => (
        <Link to="/runs" search={{ queue: queue.name }}>
          {queue.name}
        </Link>
      ),
    },
    { key: "state", head: "State", phone: "first", cell: (queue) => <span title={queue.paused_why ?? ""}><StateMark state={stateOf(queue)} /></span> },
    { key: "depth", head: "Waiting", align: "end", cell: (queue) => <RunsIn queue={queue} status="QUEUED" number={queue.depth} unit="waiting" /> },
    { key: "oldest", head: "Oldest", align: "end", cell: (queue) => (queue.oldest_seconds ? <><span className="onPhone">oldest </span>{duration(queue.oldest_seconds)}</> : null) },
    { key: "held", head: "Held", align: "end", phone: "none", cell: (queue) => <RunsIn queue={queue} status="HELD" number={queue.held} /> },
    { key: "scheduled", head: "Backing off", align: "end", phone: "none", room: 3, cell: (queue) => <RunsIn queue={queue} status="SCHEDULED" number={queue.scheduled} /> },
    { key: "running", head: "Running", align: "end", phone: "none", cell: (queue) => <RunsIn queue={queue} status="RUNNING" number={queue.running} /> },
    { key: "rate", head: "Ended", align: "end", phone: "none", room: 2, cell: (queue) => <span className={queue.rate === 0 ? "muted" : ""}>{rate(queue.rate)}</span> },
    { key: "failed", head: "Failed, 1 min", align: "end", phone: "none", room: 2, cell: (queue) => <RunsIn queue={queue} status="FAILED" number={queue.failed} /> },
    { key: "empty", head: "Empty in", align: "end", phone: "none", room: 3, cell: (queue) => (queue.depth > 0 && queue.rate > 0 ? `≈ ${duration(queue.depth / queue.rate)}` : "") },
    { key: "workers", head: "Workers", align: "end", phone: "none", cell: (queue) => (queue.workers === 0 ? <span className="muted">0</span> : <Link to="/workers" search={{ q: queue.name }}>{count(queue.workers)}</Link>) },
    {
      key: "limits", head: "Limits", phone: "none", cut: true, room: 1,
      cell: (queue) => (
        <Button kind="link" onClick={() => setVerb({ kind: "limits", queue })} aria-label={`${limitWords(queue)}: limits of ${queue.name}`}>
          {limitWords(queue)}
        </Button>
      ),
    },
    {
      key: "verbs", head: <span className="sr">Verbs</span>,
      cell: (queue) => (
        <Button onClick={() => setVerb({ kind: queue.limits?.paused ? "resume" : "pause", queue })} aria-label={`${queue.limits?.paused ? "Resume" : "Pause"} ${queue.name}`}>
          {queue.limits?.paused ? "Resume" : "Pause"}
        </Button>
      ),
    },
  ];
}

/** Runs that wait where nobody takes them are no green light. */
export function stateOf(queue: QueueView): string {
  return queue.paused ? "PAUSED" : queue.workers === 0 && queue.depth > 0 ? "NO_WORKER" : queue.workers === 0 ? "IDLE" : "LIVE";
}

function useRenew(): () => void {
  const client = useQueryClient();
  return () => void client.invalidateQueries({ queryKey: ["queues"] });
}

function limitWords(queue: QueueView): string {
  const limits = queue.limits;
  const words = [
    limits?.concurrency ? `${limits.in_use ?? 0} of ${limits.concurrency} at once` : "",
    limits?.rate ? limits.rate : "",
    limits?.max_depth ? `≤ ${count(limits.max_depth)} waiting` : "",
  ].filter(Boolean);
  return words.length === 0 ? "none" : words.join(", ");
}

function PauseOrResume({ verb, onClose }: { verb: Verb; onClose: () => void }) {
  const renew = useRenew();
  const { kind, queue } = verb;
  const act = async (): Promise<void> => {
    await change("POST", `/v1/queues/${encodeURIComponent(queue.name)}:${kind}`, queue.version, {});
    say(`The queue ${queue.name} is ${kind === "pause" ? "paused" : "resumed"}.`);
    renew();
  };
  return kind === "pause" ? (
    <Confirm title={`Pause the queue ${queue.name}?`} verb="Pause the queue" act={act} onClose={onClose} onConflict={renew}>
      <p>No run of it starts from now on; {count(queue.depth)} wait. The {count(queue.running)} that run go on. Jobs can be submitted, and schedules fire.</p>
    </Confirm>
  ) : (
    <Confirm title={`Resume the queue ${queue.name}?`} verb="Resume the queue" act={act} onClose={onClose} onConflict={renew}>
      <p>Its {count(queue.depth)} waiting runs start as soon as workers are free.</p>
    </Confirm>
  );
}

function Limits({ queue, onClose }: { queue: QueueView; onClose: () => void }) {
  const renew = useRenew();
  const [concurrency, setConcurrency] = useState(String(queue.limits?.concurrency ?? ""));
  const [perTime, setPerTime] = useState(queue.limits?.rate ?? "");
  const [depth, setDepth] = useState(String(queue.limits?.max_depth ?? ""));
  const act = async (): Promise<void> => {
    const number = (text: string): number | null => (text.trim() === "" ? null : Number(text));
    const body = { concurrency: number(concurrency), rate: perTime.trim() || null, max_depth: number(depth) };
    await change("PUT", `/v1/queues/${encodeURIComponent(queue.name)}`, queue.version, body);
    say(`The limits of ${queue.name} hold from now on.`);
    renew();
  };
  return (
    <Confirm title={`Limits of the queue ${queue.name}`} verb="Set the limits" act={act} onClose={onClose} onConflict={renew}>
      <p className="muted">They hold at once, also for runs that wait already. Empty means no limit.</p>
      <Field label="Runs at once" inputMode="numeric" value={concurrency} onChange={(event) => setConcurrency(event.target.value)} />
      <Field label="Starts" help="such as 100/m or 5/s" value={perTime} onChange={(event) => setPerTime(event.target.value)} />
      <Field label="Runs that may wait" inputMode="numeric" value={depth} onChange={(event) => setDepth(event.target.value)} />
    </Confirm>
  );
}
