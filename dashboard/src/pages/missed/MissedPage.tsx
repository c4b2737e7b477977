// Missed fires of all jobs, newest first.
import { Link, useSearch } from "@tanstack/react-router";
import type { MissedFires, MissedList } from "../../api/schema";
import { plural } from "../../lib/format";
import { ChoiceFilter, Filters, TextFilter } from "../../ui/Filters";
import { List } from "../../ui/List";
import { Card, Empty, Page } from "../../ui/Page";
import { StateMark } from "../../ui/StateMark";
import type { Column } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { useKeyset } from "../../ui/useKeyset";

const COLUMNS: Column<MissedFires>[] = [
  { key: "count", head: "Fires", phone: "first", cell: (range) => <StateMark state="MISSED" detail={plural(range.count, "fire")} /> },
  {
    key: "job", head: "Job", phone: "first", grow: true,
    cell: (range) => (
      <Link to="/jobs/$job" params={{ job: range.job_id }} search={{ tab: "missed" }} title={range.job_id}>
        {range.name}
      </Link>
    ),
  },
  { key: "first", head: "First", cell: (range) => <Time at={range.first} /> },
  { key: "last", head: "Last", phone: "none", cell: (range) => <Time at={range.last} /> },
  { key: "reason", head: "Reason", grow: true, cell: (range) => <span title={range.reason}>{range.reason}</span> },
  { key: "recorded", head: "Recorded", phone: "none", cell: (range) => <Time at={range.recorded_at} /> },
];
const FILTERS = ["job", "reason"] as const;
const REASONS: [string, string][] = [
  ["paused", "Paused"], ["cancelled", "Cancelled"], ["deleted", "Deleted"], ["late: misfire policy skip", "Late, and skipped"],
  ["coalesced into a later fire", "Coalesced"], ["over the misfire cap", "Over the cap"], ["older than the misfire grace", "Older than the grace"],
];
const keyOf = (range: MissedFires): string => range.job_id + range.recorded_at + range.first;

export function MissedPage() {
  const search = useSearch({ from: "/missed" });
  const list = useKeyset<MissedList, MissedFires>({
    path: "/v1/missed-fires", query: { job: search.job, reason: search.reason }, after: search.after, rows: (body) => body.missed,
    next: (body) => body.next, id: keyOf, everyMs: 15_000,
  });
  const active = FILTERS.filter((name) => search[name] !== undefined);
  return (
    <Page title="Missed fires" lead="Fires that did not run, and why: nobody could fire them in time, or the job was paused.">
      <Filters active={active}>
        <TextFilter name="job" value={search.job} label="Job id" wide />
        <ChoiceFilter name="reason" value={search.reason} label="Reason" options={REASONS} />
      </Filters>
      <Card flush>
        <List
          label="Missed fires" list={list} after={search.after} rowKey={keyOf} columns={COLUMNS}
          empty={<Empty title="No fire was missed">{active.length > 0 ? "that matches." : "Fires that did not run would be here, with the reason."}</Empty>}
        />
      </Card>
    </Page>
  );
}
