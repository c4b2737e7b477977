// Missed fires of all jobs, newest first.
import { Link, useSearch } from "@tanstack/react-router";
import type { MissedFires, MissedList } from "../../api/schema";
import { plural } from "../../lib/format";
import { ChoiceFilter, Filters, TextFilter } from "../../ui/Filters";
import { List } from "../../ui/List";
import { Card, Empty, Page } from "../../ui/Page";
import { StateMark } from "../../ui/StateMark";
import type { Column } from "../../ui/Table";
import { BackfilledBy } from "../operations/BackfilledBy";
import { MakeUp } from "../operations/MakeUp";
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
  { key: "last", head: "Last", phone: "none", room: 1, cell: (range) => <Time at={range.last} /> },
  { key: "reason", head: "Reason", grow: true, cell: (range) => <span title={range.reason}>{range.reason}</span> },
  { key: "made up", head: "Backfilled", cell: (range) => <BackfilledBy ids={range.backfills} /> },
  { key: "recorded", head: "Recorded", phone: "none", room: 2, cell: (range) => <Time at={range.recorded_at} /> },
  { key: "verbs", head: <span className="sr">Verbs</span>, cell: (range) => (range.backfills.length > 0 ? null : <MakeUp job={range.job_id} name={range.name ?? null} range={range} />) },
];
const FILTERS = ["q", "job", "reason"] as const;
const REASONS: [string, string][] = [
  ["paused", "Paused"], ["cancelled", "Cancelled"], ["deleted", "Deleted"], ["late: misfire policy skip", "Late, and skipped"],
  ["coalesced into a later fire", "Coalesced"], ["over the misfire cap", "Over the cap"], ["older than the misfire grace", "Older than the grace"],
];
const keyOf = (range: MissedFires): string => range.job_id + range.recorded_at + range.first;

export function MissedPage() {
  const search = useSearch({ from: "/missed" });
  const list = useKeyset<MissedList, MissedFires>({
    path: "/v1/missed-fires", query: { q: search.q, job: search.job, reason: search.reason }, after: search.after, rows: (body) => body.missed,
    next: (body) => body.next, id: keyOf, everyMs: 15_000,
  });
  const active = FILTERS.filter((name) => search[name] !== undefined);
  return (
    <Page title="Missed fires" lead="Fires that did not run, and why: nobody could fire them in time, or the job was paused.">
      <Filters active={active}>
        <TextFilter name="q" value={search.q} label="Name or id of the job" wide />
        <ChoiceFilter name="reason" value={search.reason} label="Reason" options={REASONS} />
      </Filters>
      <Card flush>
        <List
          label="Missed fires" list={list} after={search.after} rowKey={keyOf} columns={COLUMNS}
          empty={
            active.length > 0 ? (
              <Empty title="No missed fire matches.">Clear the filters to see all missed fires.</Empty>
            ) : (
              <Empty title="No fire was missed" command="mainspring submit --command 'echo hello' --every 1m --misfire skip">
                Fires that did not run would be here, with the reason. What becomes of late ones is up to the job:
              </Empty>
            )
          }
        />
      </Card>
    </Page>
  );
}
