// The columns of lists of runs.
import { Link } from "@tanstack/react-router";
import type { RunListRow } from "../../api/schema";
import { duration, errorLine, plain, shortId } from "../../lib/format";
import { StateMark } from "../../ui/StateMark";
import type { Column } from "../../ui/Table";
import { Time } from "../../ui/Time";

export function runColumns(options: { job: boolean }): Column<RunListRow>[] {
  const all: (Column<RunListRow> | null)[] = [
    { key: "state", head: "State", phone: "first", cell: (run) => <StateMark state={run.status} /> },
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
    { key: "for", head: "Scheduled for", cell: (run) => <Time at={run.scheduled_for} /> },
    { key: "waited", head: "Waited", align: "end", phone: "none", cell: (run) => waited(run) },
    { key: "ran", head: "Ran", align: "end", cell: (run) => (run.duration === null ? null : `${duration(run.duration)}`) },
    { key: "attempt", head: "Attempt", align: "end", phone: "none", cell: (run) => `${run.attempt_number} of ${run.max_attempts}` },
    { key: "worker", head: "Worker", phone: "none", cell: (run) =>
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

type Timed = Pick<RunListRow, "start_time" | "scheduled_for" | "created_at" | "trigger">;

export function waited(run: Timed): string {
  if (run.start_time === null) return "";
  return duration(Math.max(0, (Date.parse(run.start_time) - waitsSince(run)) / 1000));
}

/** Since when a run waits: a repeat of an earlier run waits since it was created, all others since they were due. */
export function waitsSince(run: Timed): number {
  const repeats = /^(replay|rerun|backfill):/.test(run.trigger);
  return Date.parse(repeats && run.created_at ? run.created_at : run.scheduled_for);
}
