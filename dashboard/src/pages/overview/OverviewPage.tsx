import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { lazy, Suspense } from "react";
import { get } from "../../api/client";
import { OVERVIEW_WINDOWS as WINDOWS, overviewQuery, type Window } from "../../api/queries";
import type { Failures, JobRows, Overview, UpcomingFire, UpcomingFires } from "../../api/schema";
import { count, counted, duration, percent, plural, rate, short } from "../../lib/format";
import { useNow } from "../../live/clock";
import { Filters, TextFilter, useSetSearch } from "../../ui/Filters";
import { Card, Empty, Figure, Figures, Page, Skeleton, Toolbar } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { Choice } from "../../ui/Tabs";
import { Time } from "../../ui/Time";
import { FailureTable } from "../failures/FailureTable";
import { FirstSteps } from "./FirstSteps";
import styles from "./Overview.module.css";
import { VerdictBox } from "./VerdictBox";
import { WaitingLine } from "./WaitingLine";

const Charts = lazy(() => import("./Charts"));

export function OverviewPage() {
  const search = useSearch({ from: "/" });
  const w = WINDOWS.find((one) => one === search.w) ?? "1h";
  const set = useSetSearch();
  const found = useQuery({ ...overviewQuery(w, search.queue, search.task), placeholderData: keepPreviousData });
  const active = (["queue", "task"] as const).filter((name) => search[name] !== undefined);
  const overview = found.data;
  return (
    <Page title="Overview">
      {overview ? <VerdictBox overview={overview} /> : null}
      <WaitingLine />
      {overview && active.length === 0 ? <FirstSteps overview={overview} /> : null}
      <Toolbar>
        <Choice<Window> label="Window" value={w} options={WINDOWS.map((one) => [one, one])} onChange={(next) => set({ w: next }, true)} />
        <Filters active={active}>
          <TextFilter name="queue" value={search.queue} label="Queue" />
          <TextFilter name="task" value={search.task} label="Task" />
        </Filters>
      </Toolbar>
      {found.isPending ? <Skeleton /> : null}
      {overview === undefined && found.error ? <ProblemBox error={found.error} retry={() => void found.refetch()} /> : null}
      {overview ? (
        <>
          <Numbers overview={overview} w={w} />
          <div className={styles.lists}>
            <Failing />
            <Coming />
          </div>
          {overview.window ? (
            <Suspense fallback={<Skeleton />}>
              <Charts window={overview.window} queue={search.queue} task={search.task} />
            </Suspense>
          ) : null}
          <System overview={overview} />
        </>
      ) : null}
    </Page>
  );
}

function Numbers({ overview, w }: { overview: Overview; w: string }) {
  const totals = overview.window?.totals;
  const success = totals?.success_rate ?? null;
  return (
    <Figures>
      <Figure label={`Ended, ${w}`} value={short(totals?.ended ?? 0)} note={`${rate(overview.rate)} now`} />
      <Figure label="Succeeded" value={success === null ? "–" : percent(success)} tone={success !== null && success < 0.95 ? "failed" : undefined} note={totals ? `${count(totals.failed)} failed` : undefined} />
      <Figure label="Start lag p50" value={duration(totals?.lag_p50) || "–"} note={totals?.lag_p99 ? `p99 ${duration(totals.lag_p99)}` : undefined} />
      <Figure label="Waiting" value={<Link to="/runs" search={{ status: "QUEUED" } as never}>{short(overview.waiting)}</Link>} note={overview.oldest_seconds ? `oldest ${duration(overview.oldest_seconds)}` : undefined} />
      <Figure label="Busy slots" value={<Link to="/runs" search={{ status: "RUNNING" } as never} aria-label={`Runs that run now: ${count(overview.busy)} of ${count(overview.slots)} slots`}>{count(overview.busy)} of {count(overview.slots)}</Link>} />
      <Figure label="Due, not fired" value={count(overview.backlog)} tone={overview.backlog > 0 && overview.fire_lag > 5 ? "held" : undefined} />
      <Figure label={`Missed, ${w}`} value={<Link to="/missed">{count(totals?.missed ?? 0)}</Link>} />
      <Figure label="Dead letters" value={<Link to="/dead-letters">{counted(overview.dead_letters, overview.dead_letters_estimated ?? false)}</Link>} />
    </Figures>
  );
}

function Failing() {
  const failures = useQuery({
    queryKey: ["failures", "overview"],
    queryFn: ({ signal }) => get<Failures>("/v1/insights/failures", { since: new Date(Date.now() - 86_400_000).toISOString() }, signal),
    refetchInterval: 10_000,
  });
  const groups = failures.data?.groups.slice(0, 5) ?? [];
  return (
    <Card flush title="Failing, last 24 h" aside={<Link to="/failures">All failures</Link>}>
      {failures.isPending ? <Skeleton lines={3} /> : groups.length === 0 ? <Empty title="Nothing fails">No attempt failed in the last 24 hours.</Empty> : <FailureTable groups={groups} brief />}
    </Card>
  );
}

function Coming() {
  const coming = useQuery({
    queryKey: ["coming"],
    queryFn: ({ signal }) => get<UpcomingFires>("/v1/insights/upcoming", { limit: 500 }, signal),
    refetchInterval: 10_000,
  });
  // Jobs that fire often fill the list of fires: the next fire of the others stands in their rows.
  const jobs = useQuery({
    queryKey: ["list", "/v1/jobs", "coming"],
    queryFn: ({ signal }) => get<JobRows>("/v1/jobs", { view: "row", limit: 100 }, signal),
    refetchInterval: 30_000,
  });
  const now = useNow();
  const rows = (jobs.data?.jobs ?? []).flatMap((job) => (job.next_fire_at ? [{ at: job.next_fire_at, job_id: job.job_id, name: job.name }] : []));
  const ahead = [...(coming.data?.fires ?? []), ...rows]
    .filter((fire) => Date.parse(fire.at) >= now - 1000)
    .sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
  const named = new Map<string, Pick<UpcomingFire, "at" | "job_id" | "name">>();
  for (const fire of ahead) if (!named.has(fire.job_id)) named.set(fire.job_id, fire);
  const fires = [...named.values()].slice(0, 6);
  return (
    <Card title="Coming" aside={<Link to="/upcoming">Upcoming fires</Link>}>
      {fires.length === 0 && !coming.isPending ? (
        <Empty title="Nothing is scheduled" command={"mainspring submit --command 'echo hello' --every 1m --name hello"}>
          Create a first schedule:
        </Empty>
      ) : (
        <ol className={styles.coming}>
          {fires.map((fire) => (
            <li key={fire.at + fire.job_id}>
              <Link to="/jobs/$job" params={{ job: fire.job_id }} className="cut">
                {fire.name}
              </Link>
              <Time at={fire.at} />
            </li>
          ))}
        </ol>
      )}
    </Card>
  );
}

function System({ overview }: { overview: Overview }) {
  const workers = Object.entries(overview.workers).map(([state, number]) => `${number} ${state.toLowerCase()}`).join(", ");
  return (
    <p className="muted">
      {plural(overview.schedulers, "scheduler")} with {overview.shards_held} of {overview.shards} shards · workers: <Link to="/workers">{workers || "none"}</Link> · version {overview.version} · counted{" "}
      <Time at={overview.taken_at ?? overview.at} />
    </p>
  );
}
