// One worker: what it is, what it runs now, what it did lately, and how to end it.
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { LogOut } from "lucide-react";
import { useState } from "react";
import { get } from "../../api/client";
import { workerQuery } from "../../api/queries";
import type { RunRows, WorkerView } from "../../api/schema";
import { count, duration, percent } from "../../lib/format";
import { useNow } from "../../live/clock";
import { Button } from "../../ui/Button";
import { Card, Empty, Facts, Figure, Figures, Page, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { RunBars } from "../../ui/RunBars";
import { StateMark } from "../../ui/StateMark";
import { Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { runColumns } from "../runs/columns";
import { Drain } from "./columns";
import styles from "./WorkersPage.module.css";

const COLUMNS = runColumns({ job: true }).filter((column) => column.key !== "worker");
const NEWEST = 48;

export function WorkerPage() {
  const { worker: id } = useParams({ from: "/workers/$worker" });
  const worker = useQuery(workerQuery(id));
  const [draining, setDraining] = useState(false);
  const shown = worker.data;
  if (shown === undefined)
    return (
      <Page title="Worker">{worker.isPending ? <Skeleton /> : <ProblemBox error={worker.error} retry={() => void worker.refetch()} />}</Page>
    );
  return (
    <Page
      title={shown.name}
      heading={
        <>
          <span className="wrap">{shown.name}</span> <StateMark state={shown.state} />
        </>
      }
      lead={<>A worker · <code>{shown.worker_id}</code>{shown.shared ? " · it takes runs of every tenant" : ""}</>}
      actions={
        shown.state === "LIVE" ? (
          <Button needs="workers.drain" icon={<LogOut size={14} />} onClick={() => setDraining(true)}>
            Drain
          </Button>
        ) : null
      }
    >
      <State worker={shown} />
      <Figures>
        <Figure label="Busy slots" value={`${count(shown.running)} of ${count(shown.slots)}`} />
        <Figure label="Holds, not started" value={count(Math.max(0, shown.holding - shown.running))} />
        <Figure label="Last beat" value={<Time at={shown.last_beat_at} focusable />} />
        <Figure label="Since" value={<Time at={shown.registered_at} focusable />} />
        <Figure label="Version" value={shown.version || "–"} />
      </Figures>
      <Now worker={shown} />
      <Lately worker={shown} />
      <Card title="What it takes">
        <Facts
          rows={[
            ["Queues", shown.queues.length === 0 ? "" : <>{shown.queues.map((queue) => <Link key={queue} to="/queues/$queue" params={{ queue }} className={styles.one}>{queue}</Link>)}</>],
            ["Tasks", shown.tasks.length === 0 ? "" : <>{shown.tasks.map((task) => <Link key={task} to="/runs" search={{ worker: shown.worker_id, task }} className={styles.one}>{task}</Link>)}</>],
            ["Labels", Object.entries(shown.labels).map(([key, value]) => `${key}=${value}`).join(", ")],
          ]}
        />
      </Card>
      {draining ? <Drain worker={shown} onClose={() => setDraining(false)} /> : null}
    </Page>
  );
}

/** A sentence for a worker that does not work as usual. */
function State({ worker }: { worker: WorkerView }) {
  const now = useNow();
  const silent = worker.last_beat_at ? (now - Date.parse(worker.last_beat_at)) / 1000 : 0;
  const words =
    worker.state === "DRAINING" ? `It takes no more runs, and stops when the ${count(worker.holding)} that it holds have ended.`
    : worker.state === "LOST" ? "It was silent for longer than its lease, and its runs went to other workers. If its process lives, it comes back as a new worker."
    : worker.state === "STOPPED" ? "It has stopped. Somebody has to start it again."
    : silent > 10 ? `It has been silent for ${duration(silent)}. If it stays silent, its runs go to other workers.`
    : null;
  return words ? <p className={styles.note}>{words}</p> : null;
}

function Now({ worker }: { worker: WorkerView }) {
  const runs = useRuns(worker, "RUNNING", 100);
  const rows = runs.data?.runs ?? [];
  return (
    <Card flush title="Running now">
      {runs.isPending ? <Skeleton lines={2} /> : rows.length === 0 ? <Empty title="It runs nothing now." /> : <Table label="Running now" columns={COLUMNS} rows={rows} rowKey={(run) => run.run_id} />}
    </Card>
  );
}

function Lately({ worker }: { worker: WorkerView }) {
  const runs = useRuns(worker, undefined, NEWEST);
  const rows = runs.data?.runs ?? [];
  const ended = rows.filter((run) => run.status === "SUCCESS" || run.status === "FAILED");
  const good = ended.filter((run) => run.status === "SUCCESS").length;
  return (
    <Card
      title="Lately"
      aside={
        <span className="muted">
          {ended.length > 0 ? `${percent(good / ended.length)} of the newest ${ended.length} succeeded · ` : ""}
          <Link to="/runs" search={{ worker: worker.worker_id }}>all its runs</Link>
        </span>
      }
    >
      {runs.isPending ? <Skeleton lines={1} /> : rows.length === 0 ? <p className="muted">It has run nothing yet.</p> : <RunBars runs={rows} label={`The last ${rows.length} runs, newest first`} />}
    </Card>
  );
}

function useRuns(worker: WorkerView, status: string | undefined, limit: number) {
  return useQuery({
    queryKey: ["list", "/v1/runs", "worker", worker.worker_id, status],
    queryFn: ({ signal }) => get<RunRows>("/v1/runs", { worker: worker.worker_id, status, view: "row", limit }, signal),
    refetchInterval: 3000,
  });
}
