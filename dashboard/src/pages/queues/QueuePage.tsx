// One queue: what waits and why, how it did over time, who takes from it, what runs now.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearch } from "@tanstack/react-router";
import { Gauge, Pause, Play } from "lucide-react";
import { lazy, Suspense, useState } from "react";
import { get } from "../../api/client";
import { queueQuery, workersQuery } from "../../api/queries";
import type { Overview, QueueView, RunListRow, RunRows, WorkerView } from "../../api/schema";
import { count, duration, percent, rate } from "../../lib/format";
import { Button } from "../../ui/Button";
import { useSetSearch } from "../../ui/Filters";
import { Card, Empty, Figure, Figures, Page, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { StateMark } from "../../ui/StateMark";
import { Table } from "../../ui/Table";
import { Choice } from "../../ui/Tabs";
import { Time } from "../../ui/Time";
import { runColumns } from "../runs/columns";
import { workerColumns } from "../workers/columns";
import styles from "./QueuePage.module.css";
import { limitWords, QueueDialog, type QueueVerb, RunsIn, stateOf } from "./verbs";

const Charts = lazy(() => import("./Charts"));
const WINDOWS = ["1h", "6h", "24h", "7d", "30d"] as const;
type Window = (typeof WINDOWS)[number];
const RUNS = 20;

export function QueuePage() {
  const { queue: name } = useParams({ from: "/queues/$queue" });
  const queue = useQuery(queueQuery(name));
  const [kind, setKind] = useState<QueueVerb["kind"] | null>(null);
  const shown = queue.data;
  if (shown === undefined)
    return (
      <Page title={name}>{queue.isPending ? <Skeleton /> : <ProblemBox error={queue.error} retry={() => void queue.refetch()} />}</Page>
    );
  const paused = shown.limits?.paused ?? false;
  return (
    <Page
      title={name}
      heading={
        <>
          <span className="wrap">{name}</span> <StateMark state={stateOf(shown)} />
        </>
      }
      lead={<>A queue · limits: {limitWords(shown)} · <Link to="/jobs" search={{ queue: name }}>its jobs</Link> · <Link to="/runs" search={{ queue: name }}>its runs</Link></>}
      actions={
        <>
          <Button needs={paused ? "queues.resume" : "queues.pause"} icon={paused ? <Play size={14} /> : <Pause size={14} />} data-key="." onClick={() => setKind(paused ? "resume" : "pause")}>
            {paused ? "Resume" : "Pause"}
          </Button>
          <Button needs="queues.update" icon={<Gauge size={14} />} onClick={() => setKind("limits")}>
            Limits
          </Button>
        </>
      }
    >
      <Behind queue={shown} />
      <Numbers queue={shown} />
      <OverTime queue={name} />
      <Takers queue={name} />
      <Running queue={name} />
      {kind ? <QueueDialog verb={{ kind, queue: shown }} onClose={() => setKind(null)} /> : null}
    </Page>
  );
}

/** Why runs of it wait, in the words of the server. */
function Behind({ queue }: { queue: QueueView }) {
  const waiting = queue.depth + queue.held;
  const why = queue.behind ?? [];
  if (waiting === 0 && !queue.paused) return null;
  if (waiting === 0) return <p className={styles.behind}>{queue.paused_why}. Nothing waits.</p>;
  if (why.length === 0)
    return (
      <p className={styles.behind}>
        {count(waiting)} {waiting === 1 ? "run waits" : "runs wait"}, and nothing keeps them: workers take them as they become free
        {queue.rate > 0 ? <>, in about {duration(queue.depth / queue.rate)} at the present pace</> : null}.
      </p>
    );
  return (
    <section className={styles.behind} aria-label="Why it is behind">
      <strong>
        {count(waiting)} {waiting === 1 ? "run waits" : "runs wait"}
        {queue.oldest_seconds ? <>, the oldest for {duration(queue.oldest_seconds)}</> : null}:
      </strong>
      <ul>
        {why.map((sentence) => (
          <li key={sentence}>{sentence}</li>
        ))}
      </ul>
    </section>
  );
}

function Numbers({ queue }: { queue: QueueView }) {
  const ended = queue.succeeded + queue.failed;
  return (
    <Figures>
      <Figure label="Waiting" value={<RunsIn queue={queue} status="QUEUED" number={queue.depth} />} note={queue.oldest_seconds ? `oldest ${duration(queue.oldest_seconds)}` : undefined} />
      <Figure label="Running" value={<RunsIn queue={queue} status="RUNNING" number={queue.running} />} />
      <Figure label="Held by limits" value={<RunsIn queue={queue} status="HELD" number={queue.held} />} />
      <Figure label="Backing off" value={<RunsIn queue={queue} status="SCHEDULED" number={queue.scheduled} />} />
      <Figure label="Ended, 1 min" value={rate(queue.rate)} note={ended > 0 ? `${percent(queue.succeeded / ended)} succeeded` : undefined} />
      <Figure label="Workers" value={count(queue.workers)} tone={queue.workers === 0 && queue.depth > 0 ? "failed" : undefined} />
    </Figures>
  );
}

function OverTime({ queue }: { queue: string }) {
  const search = useSearch({ from: "/queues/$queue" });
  const w: Window = WINDOWS.find((one) => one === search.w) ?? "1h";
  const set = useSetSearch();
  const found = useQuery({
    queryKey: ["overview", w, queue, undefined],
    queryFn: ({ signal }) => get<Overview>("/v1/insights/overview", { w, queue }, signal),
    refetchInterval: 5000,
    placeholderData: keepPreviousData,
  });
  return (
    <Card title="Over time" aside={<Choice<Window> label="Window" value={w} options={WINDOWS.map((one) => [one, one])} onChange={(next) => set({ w: next }, true)} />}>
      {found.data?.window ? (
        <Suspense fallback={<Skeleton lines={3} />}>
          <Charts window={found.data.window} queue={queue} />
        </Suspense>
      ) : found.isPending ? (
        <Skeleton lines={3} />
      ) : (
        <ProblemBox error={found.error} retry={() => void found.refetch()} />
      )}
    </Card>
  );
}

function Takers({ queue }: { queue: string }) {
  const workers = useQuery(workersQuery);
  const takers = (workers.data?.workers ?? []).filter((worker) => worker.queues.includes(queue));
  const live = takers.filter((worker) => worker.state === "LIVE" || worker.state === "DRAINING");
  const slots = live.reduce((sum, worker: WorkerView) => sum + worker.slots, 0);
  const busy = live.reduce((sum, worker: WorkerView) => sum + worker.running, 0);
  return (
    <Card flush title="Who takes from it" aside={live.length > 0 ? <span className="muted">{count(busy)} of {count(slots)} slots busy</span> : null}>
      {workers.isPending ? (
        <Skeleton lines={2} />
      ) : takers.length === 0 ? (
        <Empty title="No worker takes from it" command={`mainspring worker --queues ${queue}`}>
          Its runs wait until one does:
        </Empty>
      ) : (
        <Table label="Workers of the queue" columns={workerColumns().filter((column) => column.key !== "queues")} rows={takers} rowKey={(worker) => worker.worker_id} />
      )}
    </Card>
  );
}

const COLUMNS = runColumns({ job: true });

function Running({ queue }: { queue: string }) {
  const runs = useQuery({
    queryKey: ["list", "/v1/runs", "queue", queue],
    queryFn: ({ signal }) => get<RunRows>("/v1/runs", { queue, status: "RUNNING", view: "row", limit: RUNS }, signal),
    refetchInterval: 3000,
  });
  const rows: RunListRow[] = runs.data?.runs ?? [];
  return (
    <Card flush title="Running now" aside={<Link to="/runs" search={{ queue, status: "RUNNING" }}>All that run</Link>}>
      {runs.isPending ? <Skeleton lines={2} /> : rows.length === 0 ? <Empty title="Nothing of it runs now." /> : <Table label="Running now" columns={COLUMNS} rows={rows} rowKey={(run) => run.run_id} />}
      {runs.data?.next ? <p className={styles.more}>The newest {RUNS} are shown, as of <Time at={new Date(runs.dataUpdatedAt).toISOString()} />.</p> : null}
    </Card>
  );
}
