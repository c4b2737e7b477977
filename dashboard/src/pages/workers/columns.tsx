// The columns of lists of workers, and the verb that ends one.
import { useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { LogOut } from "lucide-react";
import { Fragment } from "react";
import { change } from "../../api/client";
import type { WorkerView } from "../../api/schema";
import { plural } from "../../lib/format";
import type { Same } from "../../ui/AsCommand";
import { Button } from "../../ui/Button";
import { Confirm } from "../../ui/Dialog";
import { StateMark } from "../../ui/StateMark";
import type { Column } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { say } from "../../ui/Toasts";
import styles from "./WorkersPage.module.css";

export function workerColumns(drain?: (worker: WorkerView) => void): Column<WorkerView>[] {
  const all: (Column<WorkerView> | null)[] = [
    { key: "state", by: (worker) => worker.state, head: "State", phone: "first", cell: (worker) => <StateMark state={worker.state} /> },
    { key: "name", by: (worker) => worker.name, head: "Worker", phone: "first", grow: true, cell: (worker) => (
        <Link to="/workers/$worker" params={{ worker: worker.worker_id }} title={worker.worker_id}>
          {worker.name}
        </Link>
      ),
    },
    {
      key: "slots", by: (worker) => worker.running / Math.max(1, worker.slots), head: "Busy", align: "end",
      cell: (worker) => (
        <span className={styles.slots}>
          <meter min={0} max={Math.max(1, worker.slots)} value={worker.running} aria-label="Busy slots" /> {worker.running} of {worker.slots}
        </span>
      ),
    },
    { key: "beat", by: (worker) => worker.last_beat_at, head: "Last beat", cell: (worker) => <Time at={worker.last_beat_at} /> },
    { key: "queues", head: "Queues", phone: "none", cell: (worker) => (
        <span className={styles.list} title={worker.queues.join(", ")}>
          {worker.queues.slice(0, 8).map((queue, index) => (
            <Fragment key={queue}>
              {index > 0 ? ", " : ""}
              <Link to="/queues/$queue" params={{ queue }}>{queue}</Link>
            </Fragment>
          ))}
        </span>
      ),
    },
    { key: "tasks", head: "Tasks", phone: "none", room: 2, cell: (worker) => <span className={styles.list} title={worker.tasks.join(", ")}>{plural(worker.tasks.length, "task")}: {worker.tasks.join(", ")}</span> },
    { key: "labels", head: "Labels", phone: "none", room: 3, cell: (worker) => <span className={styles.list}>{Object.entries(worker.labels).map(([key, value]) => `${key}=${value}`).join(", ")}</span> },
    { key: "version", head: "Version", phone: "none", room: 1, cell: (worker) => worker.version },
    { key: "since", by: (worker) => worker.registered_at, head: "Since", phone: "none", room: 3, cell: (worker) => <Time at={worker.registered_at} /> },
    drain
      ? {
          key: "verbs", head: <span className="sr">Verbs</span>,
          cell: (worker) => (worker.state === "LIVE" ? <Button needs="workers.drain" icon={<LogOut size={14} />} onClick={() => drain(worker)} aria-label={`Drain ${worker.name}`}>Drain</Button> : null),
        }
      : null,
  ];
  return all.filter((column) => column !== null);
}

export function Drain({ worker, onClose }: { worker: WorkerView; onClose: () => void }) {
  const client = useQueryClient();
  const renew = (): void => void client.invalidateQueries({ queryKey: ["workers"] });
  const act = async (): Promise<void> => {
    await change("POST", `/v1/workers/${encodeURIComponent(worker.worker_id)}:drain`, worker.etag, {});
    say(`${worker.name} drains.`);
    renew();
  };
  const same: Same = {
    command: ["worker", "drain", worker.worker_id], method: "POST", path: `/v1/workers/${encodeURIComponent(worker.worker_id)}:drain`, body: {},
    python: ["drain_worker", worker.worker_id],
  };
  return (
    <Confirm title={`Drain ${worker.name}?`} verb="Drain the worker" danger act={act} onClose={onClose} onConflict={renew} same={same}>
      <p>
        It takes no more runs, finishes the {worker.running} that it has started, hands back {Math.max(0, worker.holding - worker.running)}, and
        stops. Somebody has to start it again.
      </p>
    </Confirm>
  );
}
