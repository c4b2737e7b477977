import { Link } from "@tanstack/react-router";
import type { FailureView } from "../../api/schema";
import { count, plain, plural } from "../../lib/format";
import { Spark } from "../../ui/Spark";
import { StateShape } from "../../ui/StateMark";
import { type Column, Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { stem } from "./stem";

const BRIEF = ["title", "task", "count", "trend", "last"];

export function FailureTable({ groups, brief = false }: { groups: FailureView[]; brief?: boolean }) {
  const columns = brief ? COLUMNS.filter((column) => BRIEF.includes(column.key)) : COLUMNS;
  return <Table label="Failures by error" columns={columns} rows={groups} rowKey={(group) => group.fingerprint} whole={!brief} />;
}

const COLUMNS: Column<FailureView>[] = [
  {
    key: "title", head: "Error", phone: "first", grow: true,
    cell: (group) => (
      <Link to="/failures/$fingerprint" params={{ fingerprint: group.fingerprint }} title={plain(group.title)}>
        <StateShape state="FAILED" size={12} /> {plain(group.title)}
      </Link>
    ),
  },
  { key: "task", head: "Task", cut: true, cell: (group) => group.tasks.join(", ") },
  { key: "count", by: (group) => group.count, head: "Failed attempts", align: "end", cell: (group) => count(group.count) },
  { key: "ended", head: "Ended runs", align: "end", phone: "none", room: 3, cell: (group) => count(group.failed) },
  { key: "trend", head: "Trend", phone: "none", room: 1, cell: (group) => <Spark values={group.series} label={`${count(group.count)} over time`} /> },
  {
    key: "jobs", head: "Jobs hit", phone: "none", cut: true, room: 2,
    cell: (group) =>
      group.job_ids[0] === undefined ? "" : (
        <Link to="/jobs/$job" params={{ job: group.job_ids[0] }}>
          {group.jobs === 1 ? group.job_ids[0] : plural(group.jobs, "job")}
        </Link>
      ),
  },
  { key: "since", by: (group) => group.first, head: "Since", phone: "none", room: 2, cell: (group) => <Time at={group.first} /> },
  { key: "last", by: (group) => group.last, head: "Last", cell: (group) => <Time at={group.last} /> },
  {
    key: "letters", head: <span className="sr">More</span>, phone: "none", room: 1,
    cell: (group) => (
      <Link to="/dead-letters" search={{ task: group.tasks[0], error: stem(group.title) }}>
        Dead letters
      </Link>
    ),
  },
];
