import { Link, useSearch } from "@tanstack/react-router";
import { Plus } from "lucide-react";
import { BulkBar } from "../../bulk/BulkBar";
import { useSelection } from "../../bulk/useSelection";
import { useTotal } from "../../bulk/useTotal";
import type { JobListRow, JobRows } from "../../api/schema";
import { useMay } from "../../api/session";
import { duration } from "../../lib/format";
import { Allowed, LinkButton } from "../../ui/Button";
import { ChoiceFilter, Filters, TextFilter } from "../../ui/Filters";
import { List } from "../../ui/List";
import { Card, Empty, Page } from "../../ui/Page";
import { StateMark } from "../../ui/StateMark";
import type { Column } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { useKeyset } from "../../ui/useKeyset";
import { SavedViews, useViewColumns } from "../../views/SavedViews";
import { Outcomes, OutcomesOfPage, useOutcomes } from "./Outcomes";

const STATES: [string, string][] = [
  ["SCHEDULED", "Scheduled"], ["RUNNING", "Running"], ["PAUSED", "Paused"], ["COMPLETED", "Completed"],
  ["FAILED", "Failed"], ["CANCELLED", "Cancelled"],
];
const idOf = (job: JobListRow): string => job.job_id;
const nameOf = (job: JobListRow): string => job.name;
const TYPES: [string, string][] = [
  ["CRON", "Cron"], ["INTERVAL", "Interval"], ["RRULE", "Recurrence rule"], ["FUTURE", "Once, later"],
  ["IMMEDIATE", "Once, now"], ["AFTER", "After others"], ["EVENT", "On an event"], ["MANUAL", "By hand"],
];
const HEALTH: [string, string][] = [
  ["healthy", "Healthy"], ["late", "Late"], ["failing", "Failing"], ["silent", "Silent"], ["never_ran", "Never ran"],
];
const FILTERS = ["q", "status", "latest", "health", "queue", "task", "type", "label", "owner", "created_by"] as const;

export function JobsPage() {
  const search = useSearch({ from: "/jobs" });
  const query = {
    q: search.q, status: search.status, latest_run: search.latest, health: search.health, queue: search.queue, label: search.label,
    owner: search.owner, task: search.task, schedule_type: search.type, created_by: search.created_by,
  };
  const list = useKeyset<JobRows, JobListRow>({
    path: "/v1/jobs", query: { ...query, view: "row" }, after: search.after, rows: (body) => body.jobs, next: (body) => body.next,
    id: (job) => job.job_id,
  });
  const active = [...FILTERS, "view" as const].filter((name) => search[name] !== undefined);
  const outcomes = useOutcomes(list.rows);
  const columns = useViewColumns("jobs", search.view, COLUMNS);
  const total = useTotal("jobs", query, list, search.after);
  const mayAct = useMay("jobs.act");
  const selection = useSelection(list.rows, query, idOf, nameOf);
  return (
    <Page
      title="Jobs"
      lead="What runs, and when. Without a filter: jobs that will fire again."
      actions={
        <Allowed needs="jobs.create">
          <LinkButton kind="primary" to="/jobs/new" icon={<Plus size={14} />}>
            Create a job
          </LinkButton>
        </Allowed>
      }
    >
      <SavedViews list="jobs" names={FILTERS} search={search} columns={COLUMNS} />
      <Filters active={active}>
        <TextFilter name="q" value={search.q} label="Name or id" wide />
        <ChoiceFilter name="status" value={search.status} label="State" options={STATES} none="not ended" />
        <ChoiceFilter name="latest" value={search.latest} label="Last run" options={[["FAILED", "Failed"], ["SUCCESS", "Succeeded"], ["RUNNING", "Running"]]} />
        <ChoiceFilter name="health" value={search.health} label="Health" options={HEALTH} />
        <TextFilter name="queue" value={search.queue} label="Queue" />
        <TextFilter name="task" value={search.task} label="Task" />
        <ChoiceFilter name="type" value={search.type} label="Schedule" options={TYPES} />
        <TextFilter name="label" value={search.label} label="Label, key=value" />
        <TextFilter name="owner" value={search.owner} label="Owner" />
        <TextFilter name="created_by" value={search.created_by} label="Created by" />
      </Filters>
      <BulkBar target="jobs" selection={selection} filter={query} id={idOf} name={nameOf} />
      <Card flush>
        <OutcomesOfPage value={outcomes}>
        <List
          label="Jobs" list={list} after={search.after} total={total} rowKey={(job) => job.job_id} marked={selection.has}
          columns={[...(mayAct ? [selection.column] : []), ...columns]}
          empty={
            active.length > 0 ? (
              <Empty title="No job matches.">Clear the filters to see all jobs.</Empty>
            ) : (
              <Empty title="No jobs yet" command={"mainspring submit --command 'echo hello' --cron '*/5 * * * *' --name hello"}>
                A job says what to run and when. Create one here, from code, or with:
              </Empty>
            )
          }
        />
        </OutcomesOfPage>
      </Card>
    </Page>
  );
}

const COLUMNS: Column<JobListRow>[] = [
  { key: "state", by: (job) => job.status, head: "State", phone: "first", cell: (job) => <StateMark state={job.status} /> },
  {
    key: "name", by: (job) => job.name, head: "Job", phone: "first", grow: true,
    cell: (job) => (
      <Link to="/jobs/$job" params={{ job: job.job_id }} title={job.job_id}>
        {job.name}
      </Link>
    ),
  },
  { key: "schedule", head: "Schedule", cell: (job) => <span className="short" title={`${job.schedule_in_words}\n${job.schedule}`}>{job.schedule_in_words || job.schedule}</span> },
  { key: "next", by: (job) => job.next_fire_at, head: "Next fire", cell: (job) => <Time at={job.next_fire_at} /> },
  {
    key: "last", head: "Last run",
    cell: (job) =>
      job.latest_run ? (
        <Link to="/runs/$run" params={{ run: job.latest_run.run_id }}>
          <StateMark state={job.latest_run.status} />
        </Link>
      ) : null,
  },
  { key: "outcomes", head: "Last ten, 7 days", phone: "none", room: 1, cell: (job) => <Outcomes job={job.job_id} /> },
  {
    key: "health", head: "Health", phone: "none", room: 2,
    cell: (job) =>
      job.health ? (
        <span title={job.health.reason ?? undefined}>
          <StateMark state={job.health.state} />
        </span>
      ) : null,
  },
  { key: "took", by: (job) => job.latest_run?.duration, head: "Took", align: "end", phone: "none", room: 3, cell: (job) => duration(job.latest_run?.duration) },
  { key: "queue", by: (job) => job.queue, head: "Queue", phone: "none", cut: true, room: 3, cell: (job) => job.queue },
  { key: "owner", by: (job) => job.owner, head: "Owner", phone: "none", cut: true, room: 2, cell: (job) => job.owner },
];
