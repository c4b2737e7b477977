import { useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearch } from "@tanstack/react-router";
import { lazy, Suspense } from "react";
import { jobQuery, latestRunsQuery, upcomingQuery } from "../../api/queries";
import type { FileOwner, JobView, RunListRow } from "../../api/schema";
import { useMay } from "../../api/session";
import { duration, percent, plural } from "../../lib/format";
import { useNow } from "../../live/clock";
import { Card, Page, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { RunBars } from "../../ui/RunBars";
import { StateMark } from "../../ui/StateMark";
import { Tabs } from "../../ui/Tabs";
import { JobZone, Time } from "../../ui/Time";
import { Changes } from "../audit/Changes";
import { Definition } from "./Definition";
import { JobActions } from "./JobActions";
import styles from "./JobPage.module.css";
import { JobRuns } from "./JobRuns";
import { Missed } from "./Missed";
import { WhyCard } from "./WhyCard";

const Trends = lazy(() => import("./Trends"));

export function JobPage() {
  const { job: id } = useParams({ from: "/jobs/$job" });
  const { tab = "runs", after, w } = useSearch({ from: "/jobs/$job" });
  const mayAudit = useMay("audit.list");
  const job = useQuery(jobQuery(id));
  const runs = useQuery(latestRunsQuery(id));
  if (job.isPending)
    return (
      <Page title={id}>
        <Skeleton />
      </Page>
    );
  if (job.data === undefined)
    return (
      <Page title={id}>
        <ProblemBox error={job.error} retry={() => void job.refetch()} />
      </Page>
    );
  const shown = job.data;
  return (
    <JobZone value={shown.timezone}>
      <Page
        title={shown.name}
        heading={
          <>
            <span className="wrap">{shown.name}</span> <StateMark state={shown.status} />
          </>
        }
        lead={
          <>
            {shown.schedule_in_words || shown.schedule}
            {shown.name === shown.job_id ? null : <> · <code>{shown.job_id}</code></>} · queue{" "}
            <Link to="/queues/$queue" params={{ queue: shown.queue }}>{shown.queue}</Link>
            {shown.workflow_version === null || shown.workflow_version === undefined ? null : (
              <> · <Link to="/workflows/$workflow" params={{ workflow: shown.job_id }}>its steps</Link></>
            )}
          </>
        }
        actions={<JobActions job={shown} />}
      >
        {shown.pause_reason ? <p className={styles.note}>Paused: {shown.pause_reason}</p> : null}
        {shown.owned_by ? <OwnedByFiles owner={shown.owned_by} /> : null}
        <NextFires job={shown} />
        <Card title="Last runs" aside={<Outcome runs={runs.data ?? []} />}>
          {runs.data === undefined ? <Skeleton lines={2} /> : <Bars runs={runs.data} />}
        </Card>
        <Suspense fallback={<Skeleton />}>
          <Trends job={id} w={w} />
        </Suspense>
        <Tabs label="Parts of the job" name="tab" value={tab} tabs={[["runs", "Runs"], ["definition", "Definition"], ["missed", "Missed fires"], ["why", "Why"], ...(mayAudit ? [["history", "History"] as [string, string]] : [])]} />
        {tab === "definition" ? <Definition job={shown} /> : tab === "missed" ? <Missed job={id} /> : tab === "why" ? <WhyCard job={shown} /> : tab === "history" ? <Changes query={{ kind: "job", id }} after={after} of={shown.name} /> : <JobRuns job={id} after={after} />}
      </Page>
    </JobZone>
  );
}

/** A change by hand lasts until the files are applied again. */
function OwnedByFiles({ owner }: { owner: FileOwner }) {
  return (
    <p className={styles.note}>
      Owned by job files: {owner.owner}
      {owner.source ? <> (<code className="wrap">{owner.source}</code>)</> : null}, applied <Time at={owner.applied_at} focusable />.{" "}
      {owner.changed_since ? "It was changed since then: the next application undoes that." : "Change it there."}
    </p>
  );
}

function NextFires({ job }: { job: JobView }) {
  const upcoming = useQuery({ ...upcomingQuery(job.job_id), enabled: job.next_fire_at !== null });
  const now = useNow(job.next_fire_at !== null);
  const known = job.next_fire_at === null ? [] : (upcoming.data?.fires ?? [job.next_fire_at]);
  const ahead = known.filter((at) => Date.parse(at) >= now - 1000);
  const fires = ahead.length > 0 ? ahead : known.slice(-1);
  if (fires.length === 0)
    return <p className={styles.note}>{job.status === "PAUSED" ? "It does not fire while it is paused." : "It will not fire again by itself."}</p>;
  return (
    <div className={styles.fires}>
      <strong>
        Next <Time at={fires[0]} focusable />
      </strong>
      <ol aria-label="Next fires">
        {fires.slice(0, 4).map((at) => (
          <li key={at}>
            <Time at={at} exact focusable />
          </li>
        ))}
      </ol>
    </div>
  );
}

function Bars({ runs }: { runs: RunListRow[] }) {
  if (runs.length === 0) return <p className="muted">It has not run yet.</p>;
  return <RunBars runs={runs} label={`The last ${plural(Math.min(48, runs.length), "run")}, newest first`} />;
}

/** Figures of the runs that are shown, and no more is claimed. */
function Outcome({ runs }: { runs: RunListRow[] }) {
  const ended = runs.filter((run) => run.status === "SUCCESS" || run.status === "FAILED");
  if (ended.length === 0) return null;
  const good = ended.filter((run) => run.status === "SUCCESS").length;
  const times = ended.map((run) => run.duration ?? 0).sort((a, b) => a - b);
  return (
    <span className="muted">
      {percent(good / ended.length)} of {ended.length} succeeded · p50 {duration(times[Math.floor(times.length / 2)])}
    </span>
  );
}
