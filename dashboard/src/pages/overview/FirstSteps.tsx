// The way in for somebody who sees Mainspring for the first time: three steps, each with its command, that tick off by what
// the server sees. It appears where nothing has run yet, and stays until somebody closes it.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Circle, CircleCheck, X } from "lucide-react";
import { type ReactNode, useEffect } from "react";
import { get } from "../../api/client";
import { isLive } from "../../api/queries";
import type { JobRows, Overview, RunRows } from "../../api/schema";
import { prefer, usePreferences } from "../../lib/preferences";
import { Button } from "../../ui/Button";
import { Copy } from "../../ui/Copy";
import { Card } from "../../ui/Page";
import styles from "./FirstSteps.module.css";

const OFTEN_MS = 2000;
const FIRST_JOBS = 50;

/** The first of these jobs that fires by itself. One that was submitted to run at once is SCHEDULED, too, until a worker takes it. */
function scheduled(found: JobRows | undefined) {
  return found?.jobs.find((job) => job.schedule_type !== "IMMEDIATE");
}

export function FirstSteps({ overview }: { overview: Overview }) {
  const { guide } = usePreferences();
  const nothing = (overview.window?.totals.ended ?? 0) === 0;
  const runs = useQuery({
    queryKey: ["first-run"],
    queryFn: ({ signal }) => get<RunRows>("/v1/runs", { view: "row", limit: 1 }, signal),
    enabled: guide || nothing,
    refetchInterval: (query) => (query.state.data?.runs.some((run) => !isLive(run.status)) ? false : OFTEN_MS),
  });
  const jobs = useQuery({
    queryKey: ["first-schedule"],
    queryFn: ({ signal }) => get<JobRows>("/v1/jobs", { view: "row", limit: FIRST_JOBS, status: "SCHEDULED" }, signal),
    enabled: guide,
    refetchInterval: (query) => (scheduled(query.state.data) === undefined ? OFTEN_MS : false),
  });
  const empty = nothing && runs.data?.runs.length === 0;
  useEffect(() => {
    if (empty && !guide) prefer({ guide: true });
  }, [empty, guide]);
  if (!guide) return null;
  const run = runs.data?.runs[0];
  const job = scheduled(jobs.data);
  const hasWorker = (overview.workers["LIVE"] ?? 0) > 0;
  const done = hasWorker && run !== undefined && job !== undefined;
  return (
    <Card
      title={done ? "All three steps are done" : "First steps"}
      aside={<Button kind="quiet" icon={<X size={14} />} aria-label="Close the first steps" onClick={() => prefer({ guide: false })} />}
    >
      <ol className={styles.steps} aria-label="First steps">
        <Step done={hasWorker} title="A worker" command={`mainspring worker start --server ${location.origin}`}>
          {hasWorker ? <><Link to="/workers">It is here</Link>, and takes runs.</> : "It runs your jobs. It needs this address, a token and no database."}
        </Step>
        <Step done={run !== undefined} title="A first job" command="mainspring submit --command 'echo hello' --name hello">
          {run ? (
            <>
              {isLive(run.status) ? "It is stored, and runs as soon as a worker is free: " : "It ran: "}
              <Link to="/runs/$run" params={{ run: run.run_id }}>look at it</Link>.
            </>
          ) : (
            <>
              It runs as soon as a worker is free. Or fill in <Link to="/jobs/new">the form</Link>.
            </>
          )}
        </Step>
        <Step done={job !== undefined} title="A schedule" command="mainspring submit --command date --cron '*/5 * * * *' --name every-five">
          {job ? (
            <>
              <Link to="/jobs/$job" params={{ job: job.job_id }}>{job.name}</Link> fires by itself: {job.schedule_in_words}.
            </>
          ) : (
            "It fires every five minutes. The form shows the next fires while you type."
          )}
        </Step>
      </ol>
    </Card>
  );
}

function Step({ done, title, command, children }: { done: boolean; title: string; command: string; children: ReactNode }) {
  return (
    <li aria-label={`${title}, ${done ? "done" : "to do"}`} className={done ? styles.done : undefined}>
      {done ? <CircleCheck size={20} aria-hidden="true" /> : <Circle size={20} aria-hidden="true" />}
      <div>
        <h3>{title}</h3>
        <p className="muted">{children}</p>
        {done ? null : (
          <p className={styles.command}>
            <code>{command}</code> <Copy text={command} label="Copy the command" />
          </p>
        )}
      </div>
    </li>
  );
}
