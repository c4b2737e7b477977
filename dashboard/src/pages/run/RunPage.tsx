import { useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearch } from "@tanstack/react-router";
import { lazy, Suspense } from "react";
import { get } from "../../api/client";
import { isLive, jobQuery, runPath } from "../../api/queries";
import type { RunView, Why } from "../../api/schema";
import { duration, shortId } from "../../lib/format";
import { useNow } from "../../live/clock";
import { Copy } from "../../ui/Copy";
import { Card, Figure, Figures, Page, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { StateMark } from "../../ui/StateMark";
import { Tabs } from "../../ui/Tabs";
import { JobZone, Time } from "../../ui/Time";
import { waited, waitedSeconds } from "../runs/columns";
import { DecideStep, waitsForApproval } from "../approvals/Decide";
import { Data } from "./Data";
import { ErrorBox } from "./ErrorBox";
import { Lead } from "./Lead";
import { Neighbours } from "./Neighbours";
import { RunActions } from "./RunActions";
import styles from "./RunPage.module.css";
import { Strip } from "./Strip";
import { Timeline } from "./Timeline";
import { Usage } from "./Usage";

const Log = lazy(() => import("./Log"));

export function RunPage() {
  const { run: id } = useParams({ from: "/runs/$run" });
  const search = useSearch({ from: "/runs/$run" });
  const tab = search.tab ?? "log";
  const found = useQuery({
    queryKey: ["run", id],
    queryFn: ({ signal }) => get<RunView>(runPath(id), {}, signal),
    refetchInterval: (query) => (query.state.data === undefined || isLive(query.state.data.status) ? 1000 : 15_000),
  });
  const job = useQuery({ ...jobQuery(found.data?.job_id ?? ""), enabled: found.data !== undefined, refetchInterval: false });
  if (found.isPending)
    return (
      <Page title="Run">
        <Skeleton />
      </Page>
    );
  if (found.data === undefined)
    return (
      <Page title="Run">
        <ProblemBox error={found.error} retry={() => void found.refetch()} />
      </Page>
    );
  const run = found.data;
  return (
    <JobZone value={job.data?.timezone ?? null}>
      <Page
        title={`${run.name} ${shortId(run.run_id)}`}
        heading={
          <>
            <StateMark state={run.status} large />
            <Link to="/jobs/$job" params={{ job: run.job_id }} className="wrap">
              {run.name}
            </Link>
            <span className={styles.id}>
              <code title={run.run_id}>{shortId(run.run_id)}</code>
              <Copy text={run.run_id} label="Copy the id of the run" />
            </span>
          </>
        }
        lead={<Lead run={run} type={job.data?.schedule_type} />}
        actions={<RunActions run={run} />}
      >
        {run.error_message ? <ErrorBox run={run} /> : null}
        {isLive(run.status) && run.status !== "RUNNING" ? <WhyBox run={run} /> : null}
        {waitsForApproval(run) ? <Card title="It waits for a decision"><DecideStep run={run.run_id} /></Card> : null}
        {!isLive(run.status) && !run.error_message && run.reason ? <p className={styles.reason}>{run.reason}</p> : null}
        {run.progress && run.status === "RUNNING" ? <Progress run={run} /> : null}
        <Figures>
          <Figure label="Scheduled for" value={<Time at={run.scheduled_for} focusable />} note={<Time at={run.scheduled_for} exact />} />
          <Figure label="Waited" value={waited(run) || <Waiting run={run} />} />
          <Figure label="Ran" value={run.duration === null ? (run.start_time ? <Time at={run.start_time} /> : "–") : duration(run.duration)} />
          <Figure label="Attempt" value={`${run.attempt_number} of ${run.max_attempts}`} note={run.losses > 0 ? `${run.losses} lost` : undefined} />
          <Figure
            label="Worker"
            value={
              <span className={styles.small}>
                {run.executor ? <Link to="/workers" search={{ q: run.executor }}>{run.executor}</Link> : "none yet"}
              </span>
            }
          />
          {run.usage ? <Usage usage={run.usage} /> : null}
        </Figures>
        <Strip run={run} />
        <Neighbours run={run} />
        <Tabs label="Parts of the run" name="tab" value={tab} tabs={[["log", <span key="l" data-key="l">Log</span>], ["timeline", "Timeline"], ["data", "Data"]]} />
        {tab === "timeline" ? <Timeline run={run} /> : null}
        {tab === "data" ? <Data run={run} /> : null}
        {tab === "log" ? (
          <Suspense fallback={<Skeleton />}>
            <Logs key={run.run_id} run={run} />
          </Suspense>
        ) : null}
      </Page>
    </JobZone>
  );
}

/** The log of an attempt, and of another one beside it. */
function Logs({ run }: { run: RunView }) {
  const { attempt, find = "", at, beside } = useSearch({ from: "/runs/$run" });
  const other = Number(beside ?? 0);
  const one = <Log run={run} attempt={Number(attempt ?? 0)} find={find} line={at !== undefined && /^\d+$/.test(at) ? Number(at) : null} other={other} />;
  if (!(other > 0)) return one;
  return (
    <div className={styles.logs}>
      {one}
      <Log key={other} run={run} attempt={other} find={find} beside />
    </div>
  );
}

/** How long it has waited so far. */
function Waiting({ run }: { run: RunView }) {
  const now = useNow(isLive(run.status));
  const since = waitedSeconds(run, now);
  return <>{isLive(run.status) && since > 0 ? `${duration(since < 1 ? since : Math.floor(since))} so far` : "–"}</>;
}

/** While it waits, the reason stands where an error would. */
function WhyBox({ run }: { run: RunView }) {
  const why = useQuery({
    queryKey: ["run", run.run_id, "why"],
    queryFn: ({ signal }) => get<Why>(`${runPath(run.run_id)}/why`, {}, signal),
    refetchInterval: 2000,
  });
  return (
    <Card title="Why it waits">
      <p className="wrap">{why.data?.why ?? "…"}</p>
    </Card>
  );
}

function Progress({ run }: { run: RunView }) {
  const fraction = run.progress?.fraction ?? null;
  return (
    <div className={styles.progress}>
      <progress max={1} {...(fraction === null ? {} : { value: fraction })} aria-label="Progress" />
      <span className="wrap">
        {fraction === null ? "" : `${Math.round(fraction * 100)}% `}
        {run.progress?.message}
      </span>
    </div>
  );
}
