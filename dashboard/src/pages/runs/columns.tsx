// The columns of lists of runs.
import { Link } from "@tanstack/react-router";
import type { RunListRow } from "../../api/schema";
import { duration, errorLine, plain, shortId } from "../../lib/format";
import { StateMark } from "../../ui/StateMark";
import type { Column } from "../../ui/Table";
import { Time } from "../../ui/Time";

export function runColumns(options: { job: boolean }): Column<RunListRow>[] {
  const all: (Column<RunListRow> | null)[] = [
    { key: "state", by: (run) => run.status, head: "State", phone: "first", cell: (run) => <StateMark state={run.status} /> },
    {
      key: "run", head: "Run", phone: "first",
      cell: (run) => (
        <Link to="/runs/$run" params={{ run: run.run_id }} className="mono" title={run.run_id}>
          {shortId(run.run_id)}
        </Link>
      ),
    },
    options.job
      ? {
          key: "job", head: "Job", phone: "first", grow: true,
          cell: (run) => (
            <Link to="/jobs/$job" params={{ job: run.job_id }} title={run.job_id}>
              {run.name}
            </Link>
          ),
        }
      : null,
    { key: "for", by: (run) => run.scheduled_for, head: "Scheduled for", cell: (run) => <Time at={run.scheduled_for} /> },
    { key: "waited", by: (run) => (run.start_time === null ? null : waitedSeconds(run, Date.parse(run.start_time))), head: "Waited", align: "end", phone: "none", room: 1, cell: (run) => waited(run) },
    { key: "ran", by: (run) => run.duration, head: "Ran", align: "end", cell: (run) => (run.duration === null ? null : `${duration(run.duration)}`) },
    { key: "attempt", by: (run) => run.attempt_number, head: "Attempt", align: "end", phone: "none", room: 2, cell: (run) => `${run.attempt_number} of ${run.max_attempts}` },
    { key: "worker", by: (run) => run.executor, head: "Worker", phone: "none", cut: true, room: 1, cell: (run) =>
        run.executor_id ? (
          <Link to="/runs" search={{ worker: run.executor_id }} title={`Runs of worker ${run.executor_id}`}>
            {run.executor ?? shortId(run.executor_id)}
          </Link>
        ) : null,
    },
    {
      key: "error", head: options.job ? "Error" : "Error or reason", grow: true,
      cell: (run) => <span title={plain(run.error_message ?? run.reason ?? "")}>{errorLine(run.error_message ?? run.reason ?? "")}</span>,
    },
  ];
  return all.filter((column) => column !== null);
}

/** How long it has waited for its start, up to `until`, from when its start lag counts. */
export function waitedSeconds(run: Pick<RunListRow, "scheduled_for" | "lag_from">, until: number): number {
  return Math.max(0, (until - Date.parse(run.lag_from ?? run.scheduled_for)) / 1000);
}

export function waited(run: Pick<RunListRow, "start_time" | "scheduled_for" | "lag_from">): string {
  return run.start_time === null ? "" : duration(waitedSeconds(run, Date.parse(run.start_time)));
}
