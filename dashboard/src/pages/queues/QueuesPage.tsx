import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { change } from "../../api/client";
import { queuesQuery } from "../../api/queries";
import type { QueueView } from "../../api/schema";
import { count, duration, rate } from "../../lib/format";
import { Button } from "../../ui/Button";
import { Confirm } from "../../ui/Dialog";
import { Field } from "../../ui/Field";
import { Card, Empty, Page, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { StateMark } from "../../ui/StateMark";
import { type Column, Table } from "../../ui/Table";
import { say } from "../../ui/Toasts";

type Verb = { kind: "pause" | "resume" | "limits"; queue: QueueView };

export function QueuesPage() {
  const queues = useQuery(queuesQuery);
  const [verb, setVerb] = useState<Verb | null>(null);
  return (
    <Page title="Queues" lead="Lines of work: how many runs wait, for how long, and whether workers keep up.">
      <Card flush>
        {queues.isPending ? (
          <Skeleton />
        ) : queues.data === undefined ? (
          <ProblemBox error={queues.error} retry={() => void queues.refetch()} />
        ) : queues.data.queues.length === 0 ? (
          <Empty title="No queue yet" command="mainspring submit --command 'echo hello' --queue mail">
            A queue exists as soon as a job or a worker names it.
          </Empty>
        ) : (
          <Table label="Queues" columns={columns(setVerb)} rows={queues.data.queues} rowKey={(queue) => queue.name} />
        )}
      </Card>
      {verb?.kind === "limits" ? <Limits queue={verb.queue} onClose={() => setVerb(null)} /> : null}
      {verb !== null && verb.kind !== "limits" ? <PauseOrResume verb={verb} onClose={() => setVerb(null)} /> : null}
    </Page>
  );
}

function columns(setVerb: (verb: Verb) => void): Column<QueueView>[] {
  return [
    {
      key: "name", head: "Queue", phone: "first", grow: true,
      cell: (queue) => (
        <Link to="/runs" search={{ queue: queue.name, status: "pending" }}>
          {queue.name}
        </Link>
      ),
    },
    { key: "state", head: "State", phone: "first", cell: (queue) => <span title={queue.paused_why ?? ""}><StateMark state={queue.paused ? "PAUSED" : "LIVE"} /></span> },
    { key: "depth", head: "Waiting", align: "end", cell: (queue) => <>{count(queue.depth)}<span className="onPhone"> waiting</span></> },
    { key: "oldest", head: "Oldest", align: "end", cell: (queue) => (queue.oldest_seconds ? <><span className="onPhone">oldest </span>{duration(queue.oldest_seconds)}</> : null) },
    { key: "held", head: "Held", align: "end", phone: "none", cell: (queue) => count(queue.held) },
    { key: "scheduled", head: "Backing off", align: "end", phone: "none", cell: (queue) => count(queue.scheduled) },
    { key: "running", head: "Running", align: "end", phone: "none", cell: (queue) => count(queue.running) },
    { key: "rate", head: "Ended", align: "end", phone: "none", cell: (queue) => rate(queue.rate) },
    { key: "failed", head: "Failed/min", align: "end", phone: "none", cell: (queue) => count(queue.failed) },
    { key: "empty", head: "Empty in", align: "end", phone: "none", cell: (queue) => (queue.depth > 0 && queue.rate > 0 ? `≈ ${duration(queue.depth / queue.rate)}` : "") },
    { key: "workers", head: "Workers", align: "end", phone: "none", cell: (queue) => count(queue.workers) },
    {
      key: "limits", head: "Limits", phone: "none",
      cell: (queue) => (
        <Button kind="quiet" onClick={() => setVerb({ kind: "limits", queue })} aria-label={`${limitWords(queue)}: limits of ${queue.name}`}>
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
