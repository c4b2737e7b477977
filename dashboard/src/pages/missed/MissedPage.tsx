// Missed fires, job by job: those of the jobs on this page that have any.
import { useQueries } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { get } from "../../api/client";
import { jobPath } from "../../api/queries";
import type { JobListRow, JobRows, MissedRange } from "../../api/schema";
import { plural } from "../../lib/format";
import { Filters, TextFilter } from "../../ui/Filters";
import { Card, Empty, Page, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { StateMark } from "../../ui/StateMark";
import { type Column, Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { useKeyset } from "../../ui/useKeyset";

interface Row {
  job: JobListRow;
  range: MissedRange;
}

const COLUMNS: Column<Row>[] = [
  { key: "count", head: "Fires", phone: "first", cell: ({ range }) => <StateMark state="MISSED" detail={plural(range.count, "fire")} /> },
  {
    key: "job", head: "Job", phone: "first", grow: true,
    cell: ({ job }) => (
      <Link to="/jobs/$job" params={{ job: job.job_id }} search={{ tab: "missed" }}>
        {job.name}
      </Link>
    ),
  },
  { key: "first", head: "First", cell: ({ range }) => <Time at={range.first} /> },
  { key: "last", head: "Last", phone: "none", cell: ({ range }) => <Time at={range.last} /> },
  { key: "reason", head: "Reason", grow: true, cell: ({ range }) => <span title={range.reason}>{range.reason}</span> },
  { key: "backfilled", head: "Backfilled", phone: "none", cell: ({ range }) => (range.backfills.length > 0 ? "yes" : "") },
];

export function MissedPage() {
  const search = useSearch({ from: "/missed" });
  const jobs = useKeyset<JobRows, JobListRow>({
    path: "/v1/jobs", query: { q: search.q, status: "SCHEDULED,PAUSED", view: "row" }, after: search.after, rows: (body) => body.jobs,
    next: (body) => body.next, id: (job) => job.job_id, limit: 50, everyMs: 30_000,
  });
  const found = useQueries({
    queries: jobs.rows.map((job) => ({
      queryKey: ["job", job.job_id, "missed", "few"],
      queryFn: ({ signal }: { signal: AbortSignal }) => get<MissedRange[]>(`${jobPath(job.job_id)}/missed`, { limit: 3 }, signal),
      staleTime: 30_000,
    })),
  });
  const rows = jobs.rows
    .flatMap((job, index) => (found[index]?.data ?? []).map((range): Row => ({ job, range })))
    .sort((a, b) => b.range.recorded_at.localeCompare(a.range.recorded_at));
  const loading = jobs.pending || found.some((one) => one.isPending);
  return (
    <Page title="Missed fires" lead="Fires that did not run, and why: nobody could fire them in time, or the job was paused.">
      <Filters active={search.q === undefined ? [] : ["q"]}>
        <TextFilter name="q" value={search.q} label="Name or id of a job" wide />
      </Filters>
      <Card flush>
        {jobs.error ? (
          <ProblemBox error={jobs.error} retry={jobs.retry} />
        ) : rows.length > 0 ? (
          <Table label="Missed fires" columns={COLUMNS} rows={rows} rowKey={({ job, range }) => job.job_id + range.recorded_at + range.first} />
        ) : loading ? (
          <Skeleton />
        ) : (
          <Empty title="No fire was missed">of the {plural(jobs.rows.length, "job")} on this page.</Empty>
        )}
      </Card>
      <p className="muted">
        Looked at {plural(jobs.rows.length, "job")}, up to 3 ranges of each.{" "}
        {jobs.next ? (
          <Link to="/missed" search={{ ...search, after: jobs.next }}>
            Look at the next jobs
          </Link>
        ) : null}
      </p>
    </Page>
  );
}
