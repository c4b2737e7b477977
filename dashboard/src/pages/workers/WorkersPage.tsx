import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { Fragment, useState } from "react";
import { change, get } from "../../api/client";
import type { WorkerList, WorkerView } from "../../api/schema";
import { count, plural } from "../../lib/format";
import { Button } from "../../ui/Button";
import { Confirm } from "../../ui/Dialog";
import { ChoiceFilter, Filters, TextFilter } from "../../ui/Filters";
import { Card, Empty, Figure, Figures, Page, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { StateMark } from "../../ui/StateMark";
import { type Column, Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { say } from "../../ui/Toasts";
import styles from "./WorkersPage.module.css";

export function WorkersPage() {
  const [draining, setDraining] = useState<WorkerView | null>(null);
  const workers = useQuery({
    queryKey: ["workers"],
    queryFn: ({ signal }) => get<WorkerList>("/v1/workers", {}, signal),
    refetchInterval: 3000,
  });
  const search = useSearch({ from: "/workers" });
  const all = workers.data?.workers ?? [];
  const shown = all.filter((worker) => has(worker, search.q) && (search.state === undefined || worker.state === search.state));
  const active = (["q", "state"] as const).filter((name) => search[name] !== undefined);
  const live = all.filter((worker) => worker.state === "LIVE" || worker.state === "DRAINING");
  const slots = live.reduce((sum, worker) => sum + worker.slots, 0);
  const busy = live.reduce((sum, worker) => sum + worker.running, 0);
  return (
    <Page title="Workers" lead="Processes that run attempts. Those that ended within the last hour are shown too.">
      {live.length > 0 ? (
        <Figures>
          <Figure label="Live" value={count(live.length)} />
          <Figure label="Busy slots" value={`${count(busy)} of ${count(slots)}`} />
          <Figure label="Lost" value={count(all.filter((worker) => worker.state === "LOST").length)} />
        </Figures>
      ) : null}
      <Filters active={active}>
        <TextFilter name="q" value={search.q} label="Name, queue, task or label" wide />
        <ChoiceFilter name="state" value={search.state} label="State" options={STATES} />
      </Filters>
      <Card flush>
        {workers.isPending ? (
          <Skeleton />
        ) : workers.data === undefined ? (
          <ProblemBox error={workers.error} retry={() => void workers.refetch()} />
        ) : all.length === 0 ? (
          <Empty title="No worker" command="mainspring worker --app examples.hello:app">
            Nothing can run until a worker is there:
          </Empty>
        ) : shown.length === 0 ? (
          <Empty title="No worker matches.">Clear the filters to see all workers.</Empty>
        ) : (
          <Table label="Workers" columns={columns(setDraining)} rows={shown} rowKey={(worker) => worker.worker_id} />
        )}
      </Card>
      {draining ? <Drain worker={draining} onClose={() => setDraining(null)} /> : null}
    </Page>
  );
}

const STATES: [string, string][] = [["LIVE", "Live"], ["DRAINING", "Draining"], ["LOST", "Lost"], ["STOPPED", "Stopped"]];

function has(worker: WorkerView, text = ""): boolean {
  const labels = Object.entries(worker.labels).map(([key, value]) => `${key}=${value}`);
  return [worker.name, worker.worker_id, ...worker.queues, ...worker.tasks, ...labels].some((word) => word.toLowerCase().includes(text.toLowerCase()));
}

function columns(drain: (worker: WorkerView) => void): Column<WorkerView>[] {
  return [
    { key: "state", head: "State", phone: "first", cell: (worker) => <StateMark state={worker.state} /> },
    { key: "name", head: "Worker", phone: "first", grow: true, cell: (worker) => (
        <Link to="/runs" search={{ worker: worker.worker_id }} title={`Runs of ${worker.worker_id}`}>
          {worker.name}
        </Link>
      ),
    },
    {
      key: "slots", head: "Busy", align: "end",
      cell: (worker) => (
        <span className={styles.slots}>
          <meter min={0} max={Math.max(1, worker.slots)} value={worker.running} aria-label="Busy slots" /> {worker.running} of {worker.slots}
        </span>
      ),
    },
    { key: "beat", head: "Last beat", cell: (worker) => <Time at={worker.last_beat_at} /> },
    { key: "queues", head: "Queues", phone: "none", cell: (worker) => (
        <span className={styles.list} title={worker.queues.join(", ")}>
          {worker.queues.slice(0, 8).map((queue, index) => (
            <Fragment key={queue}>
              {index > 0 ? ", " : ""}
              <Link to="/runs" search={{ queue }}>{queue}</Link>
            </Fragment>
          ))}
        </span>
      ),
    },
    { key: "tasks", head: "Tasks", phone: "none", room: 2, cell: (worker) => <span className={styles.list} title={worker.tasks.join(", ")}>{plural(worker.tasks.length, "task")}: {worker.tasks.join(", ")}</span> },
    { key: "labels", head: "Labels", phone: "none", room: 3, cell: (worker) => <span className={styles.list}>{Object.entries(worker.labels).map(([key, value]) => `${key}=${value}`).join(", ")}</span> },
    { key: "version", head: "Version", phone: "none", room: 1, cell: (worker) => worker.version },
    { key: "since", head: "Since", phone: "none", room: 3, cell: (worker) => <Time at={worker.registered_at} /> },
    {
      key: "verbs", head: <span className="sr">Verbs</span>,
      cell: (worker) => (worker.state === "LIVE" ? <Button onClick={() => drain(worker)} aria-label={`Drain ${worker.name}`}>Drain</Button> : null),
    },
  ];
}

function Drain({ worker, onClose }: { worker: WorkerView; onClose: () => void }) {
  const client = useQueryClient();
  const renew = (): void => void client.invalidateQueries({ queryKey: ["workers"] });
  const act = async (): Promise<void> => {
    await change("POST", `/v1/workers/${encodeURIComponent(worker.worker_id)}:drain`, worker.etag, {});
    say(`${worker.name} drains.`);
    renew();
  };
  return (
    <Confirm title={`Drain ${worker.name}?`} verb="Drain the worker" danger act={act} onClose={onClose} onConflict={renew}>
      <p>
        It takes no more runs, finishes the {worker.running} that it has started, hands back {Math.max(0, worker.holding - worker.running)}, and
        stops. Somebody has to start it again.
      </p>
    </Confirm>
  );
}
