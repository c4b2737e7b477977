// One group of failures: since when, how often, what it hits, what its errors say in full, and what can be done about all.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearch } from "@tanstack/react-router";
import { RotateCcw, Trash2 } from "lucide-react";
import { lazy, Suspense, useState } from "react";
import { get } from "../../api/client";
import type { FailureGroupView, FailureView, RunListRow, RunRows, WorkerList } from "../../api/schema";
import { ActDialog } from "../../bulk/ActDialog";
import { type Filter, type Verb, VERBS } from "../../bulk/acts";
import { count, errorLine, plain, plural, shortId } from "../../lib/format";
import { Button } from "../../ui/Button";
import { Copy } from "../../ui/Copy";
import { Card, Empty, Facts, Figure, Figures, Page, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { Time } from "../../ui/Time";
import { TimeRange, useRange } from "../../ui/TimeRange";
import { stem } from "../failures/stem";
import styles from "./FailurePage.module.css";

const Trend = lazy(() => import("./Trend"));
const SAMPLES = 50;

export function FailurePage() {
  const { fingerprint } = useParams({ from: "/failures/$fingerprint" });
  const search = useSearch({ from: "/failures/$fingerprint" });
  const { since } = useRange({ w: search.w ?? "7d", since: search.since });
  const found = useQuery({
    queryKey: ["failure", fingerprint, since],
    queryFn: ({ signal }) => get<FailureGroupView>(`/v1/insights/failures/${encodeURIComponent(fingerprint)}`, { since }, signal),
    refetchInterval: 10_000,
    placeholderData: keepPreviousData,
  });
  const shown = found.data;
  return (
    <Page
      title={shown ? plain(shown.group.title) || "Failure" : "Failure"}
      lead={shown ? <>Failures of <code>{shown.group.tasks.join(", ")}</code> with this error. Numbers, ids and quoted words are left out.</> : null}
      actions={shown ? <Verbs group={shown.group} since={since} /> : null}
    >
      <TimeRange search={search} usual="7d" open />
      {shown ? <Shown view={shown} since={since} /> : found.isPending ? <Skeleton /> : <ProblemBox error={found.error} retry={() => void found.refetch()} />}
    </Page>
  );
}

/** Verbs on the dead letters of the group, which the server counts before anything happens. */
function Verbs({ group, since }: { group: FailureView; since: string | undefined }) {
  const [verb, setVerb] = useState<Verb | null>(null);
  const filter: Filter = { task: group.tasks[0], error: stem(group.title) || undefined, since };
  return (
    <>
      {VERBS["dead-letters"].map((one) => (
        <Button key={one.name} needs="dead_letters.act" icon={one.danger ? <Trash2 size={14} /> : <RotateCcw size={14} />} onClick={() => setVerb(one)}>
          {one.label} all
        </Button>
      ))}
      <Copy text={location.href} label="Copy the link for a ticket" />
      {verb ? <ActDialog target="dead-letters" verb={verb} chosen={{ filter }} onClose={() => setVerb(null)} /> : null}
    </>
  );
}

function Shown({ view, since }: { view: FailureGroupView; since: string | undefined }) {
  const { group } = view;
  const filter = { status: "FAILED", task: group.tasks[0], error: stem(group.title) || undefined, since };
  const runs = useQuery({
    queryKey: ["list", "/v1/runs", "failure", filter],
    queryFn: ({ signal }) => get<RunRows>("/v1/runs", { ...filter, limit: SAMPLES, view: "row" }, signal),
    placeholderData: keepPreviousData,
  });
  const workers = useQuery({ queryKey: ["workers"], queryFn: ({ signal }) => get<WorkerList>("/v1/workers", {}, signal) });
  const samples = runs.data?.runs ?? [];
  const versions = new Map(workers.data?.workers.map((worker) => [worker.worker_id, worker.version]));
  const hit = new Map(samples.flatMap((run) => (run.executor_id ? [[run.executor_id, run.executor ?? shortId(run.executor_id)] as const] : [])));
  return (
    <>
      <Figures>
        <Figure label="Failed attempts" value={count(group.count)} tone="failed" />
        <Figure label="Ended runs" value={count(group.failed)} />
        <Figure label="First seen" value={<Time at={group.first} focusable />} note={<Time at={group.first} exact />} />
        <Figure label="Last seen" value={<Time at={group.last} focusable />} note={<Time at={group.last} exact />} />
      </Figures>
      <Suspense fallback={<Skeleton lines={3} />}>
        <Trend view={view} />
      </Suspense>
      <Card title="What it hits">
        <Facts
          rows={[
            ["Tasks", group.tasks.join(", ")],
            ["Queues", group.queues.join(", ")],
            [
              group.jobs > group.job_ids.length ? `Jobs, some of ${count(group.jobs)}` : "Jobs",
              group.job_ids.length === 0 ? "" : <>{group.job_ids.map((job) => <Link key={job} to="/jobs/$job" params={{ job }} className={styles.one}>{job}</Link>)}</>,
            ],
            [
              "Workers of the newest runs",
              hit.size === 0 ? "" : <>{[...hit].map(([id, name]) => <Link key={id} to="/runs" search={{ worker: id, status: "FAILED" }} className={styles.one}>{name}{versions.has(id) ? `, version ${versions.get(id)}` : ""}</Link>)}</>,
            ],
          ]}
        />
      </Card>
      <Card title="Samples" aside={<Link to="/runs" search={filter}>All runs with this error</Link>}>
        {runs.isPending ? <Skeleton lines={3} /> : <Samples runs={samples} sample={group.sample_run} />}
      </Card>
    </>
  );
}

/** The different errors that the masked title stands for, each once. */
function Samples({ runs, sample }: { runs: RunListRow[]; sample: string }) {
  const byError = new Map<string, RunListRow[]>();
  for (const run of runs) {
    const line = errorLine(run.error_message ?? "");
    byError.set(line, [...(byError.get(line) ?? []), run]);
  }
  if (byError.size === 0)
    return (
      <Empty title="No ended run is found by this error.">
        An attempt failed and its run went on, or the history is gone. <Link to="/runs/$run" params={{ run: sample }}>Look at one of them</Link>
      </Empty>
    );
  return (
    <ul className={styles.samples} aria-label="Samples">
      {[...byError].slice(0, 10).map(([line, same]) => (
        <li key={line}>
          <pre className="wrap">{line}</pre>
          <span className="muted">
            {plural(same.length, "run")} of the newest {runs.length}:{" "}
            {same.slice(0, 3).map((run) => (
              <Link key={run.run_id} to="/runs/$run" params={{ run: run.run_id }} className={styles.one}>
                {run.name} {shortId(run.run_id)}
              </Link>
            ))}
          </span>
        </li>
      ))}
    </ul>
  );
}
