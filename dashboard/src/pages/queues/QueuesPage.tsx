import { useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { Gauge, Pause, Play } from "lucide-react";
import { useState } from "react";
import { queuesQuery } from "../../api/queries";
import type { QueueView } from "../../api/schema";
import { count, duration, rate } from "../../lib/format";
import { Button } from "../../ui/Button";
import { Filters, TextFilter } from "../../ui/Filters";
import { Card, Empty, Page, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { StateMark } from "../../ui/StateMark";
import { type Column, Table } from "../../ui/Table";
import { HistoryLink } from "../audit/HistoryLink";
import { limitWords, QueueDialog, type QueueVerb, RunsIn, stateOf } from "./verbs";

export function QueuesPage() {
  const queues = useQuery(queuesQuery);
  const [verb, setVerb] = useState<QueueVerb | null>(null);
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
      {verb ? <QueueDialog verb={verb} onClose={() => setVerb(null)} /> : null}
    </Page>
  );
}

function columns(setVerb: (verb: QueueVerb) => void): Column<QueueView>[] {
  return [
    {
      key: "name", by: (queue) => queue.name, head: "Queue", phone: "first", grow: true,
      cell: (queue) => (
        <Link to="/queues/$queue" params={{ queue: queue.name }}>
          {queue.name}
        </Link>
      ),
    },
    { key: "state", head: "State", phone: "first", cell: (queue) => <span title={queue.paused_why ?? ""}><StateMark state={stateOf(queue)} /></span> },
    { key: "depth", by: (queue) => queue.depth, head: "Waiting", align: "end", cell: (queue) => <RunsIn queue={queue} status="QUEUED" number={queue.depth} unit="waiting" /> },
    { key: "oldest", by: (queue) => queue.oldest_seconds, head: "Oldest", align: "end", cell: (queue) => (queue.oldest_seconds ? <><span className="onPhone">oldest </span>{duration(queue.oldest_seconds)}</> : null) },
    { key: "held", by: (queue) => queue.held, head: "Held", align: "end", phone: "none", room: 1, cell: (queue) => <RunsIn queue={queue} status="HELD" number={queue.held} /> },
    { key: "scheduled", head: "Backing off", align: "end", phone: "none", room: 3, cell: (queue) => <RunsIn queue={queue} status="SCHEDULED" number={queue.scheduled} /> },
    { key: "running", by: (queue) => queue.running, head: "Running", align: "end", phone: "none", cell: (queue) => <RunsIn queue={queue} status="RUNNING" number={queue.running} /> },
    { key: "rate", by: (queue) => queue.rate, head: "Ended", align: "end", phone: "none", room: 2, cell: (queue) => <span className={queue.rate === 0 ? "muted" : ""}>{rate(queue.rate)}</span> },
    { key: "failed", by: (queue) => queue.failed, head: "Failed, 1 min", align: "end", phone: "none", room: 2, cell: (queue) => <RunsIn queue={queue} status="FAILED" number={queue.failed} /> },
    { key: "empty", head: "Empty in", align: "end", phone: "none", room: 3, cell: (queue) => (queue.depth > 0 && queue.rate > 0 ? `≈ ${duration(queue.depth / queue.rate)}` : "") },
    { key: "workers", by: (queue) => queue.workers, head: "Workers", align: "end", phone: "none", cell: (queue) => (queue.workers === 0 ? <span className="muted">0</span> : <Link to="/workers" search={{ q: queue.name }}>{count(queue.workers)}</Link>) },
    {
      key: "limits", head: "Limits", phone: "none", cut: true, room: 1,
      cell: (queue) => <span className={queue.limits ? "" : "muted"} title={limitWords(queue)}>{limitWords(queue)}</span>,
    },
    { key: "history", head: <span className="sr">History</span>, phone: "none", room: 2, cell: (queue) => <HistoryLink kind="queue" id={queue.name} name={queue.name} /> },
    {
      key: "verbs", head: <span className="sr">Verbs</span>,
      cell: (queue) => (
        <span className="together">
          <Button needs="queues.update" icon={<Gauge size={14} />} onClick={() => setVerb({ kind: "limits", queue })} aria-label={`Set the limits of ${queue.name}`} title="Limits" />
          <Button needs={queue.limits?.paused ? "queues.resume" : "queues.pause"} icon={queue.limits?.paused ? <Play size={14} /> : <Pause size={14} />} onClick={() => setVerb({ kind: queue.limits?.paused ? "resume" : "pause", queue })} aria-label={`${queue.limits?.paused ? "Resume" : "Pause"} ${queue.name}`}>
            {queue.limits?.paused ? "Resume" : "Pause"}
          </Button>
        </span>
      ),
    },
  ];
}
