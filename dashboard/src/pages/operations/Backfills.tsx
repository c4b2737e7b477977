// Backfills, newest first. The address names the one that is open.
import { Link, useSearch } from "@tanstack/react-router";
import type { BackfillList, BackfillView } from "../../api/schema";
import { count } from "../../lib/format";
import { ChoiceFilter, Filters, TextFilter } from "../../ui/Filters";
import { List } from "../../ui/List";
import { Meter } from "../../ui/Meter";
import { Card, Empty } from "../../ui/Page";
import { StateMark } from "../../ui/StateMark";
import type { Column } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { useKeyset } from "../../ui/useKeyset";
import { BackfillCard, BackfillVerbs } from "./BackfillCard";

const STATES: [string, string][] = [["running", "Running"], ["paused", "Paused"], ["completed", "Completed"], ["cancelled", "Cancelled"]];
const idOf = (backfill: BackfillView): string => backfill.id;

const COLUMNS: Column<BackfillView>[] = [
  { key: "state", head: "State", phone: "first", cell: (backfill) => <StateMark state={backfill.state} /> },
  {
    key: "job", head: "Backfill of", phone: "first", grow: true,
    cell: (backfill) => (
      <Link to="." search={(old: Record<string, unknown>) => ({ ...old, backfill: backfill.id }) as never} resetScroll={false} title={backfill.id}>
        {backfill.job_id}
      </Link>
    ),
  },
  { key: "from", head: "From", cell: (backfill) => <Time at={backfill.from} exact /> },
  { key: "to", head: "To", phone: "none", room: 1, cell: (backfill) => <Time at={backfill.to} exact /> },
  {
    key: "progress", head: "Progress",
    cell: (backfill) => (
      <Meter
        label={`Progress of the backfill of ${backfill.job_id}`} total={backfill.total} good={backfill.succeeded + backfill.existing} going={backfill.running}
        bad={backfill.failed}
      >
        {count(backfill.total - backfill.remaining)} of {count(backfill.total)}
      </Meter>
    ),
  },
  { key: "failed", head: "Failed", align: "end", cell: (backfill) => (backfill.failed > 0 ? <>{count(backfill.failed)}<span className="onPhone"> failed</span></> : null) },
  { key: "begun", head: "Begun", phone: "none", cell: (backfill) => <Time at={backfill.created_at} /> },
  { key: "verbs", head: <span className="sr">Verbs</span>, cell: (backfill) => <BackfillVerbs backfill={backfill} /> },
];

export function Backfills() {
  const search = useSearch({ from: "/operations" });
  const list = useKeyset<BackfillList, BackfillView>({
    path: "/v1/backfills", query: { state: search.state, job: search.job }, after: search.after, rows: (body) => body.backfills,
    next: (body) => body.next, id: idOf, everyMs: 2000,
  });
  const active = (["job", "state"] as const).filter((name) => search[name] !== undefined);
  return (
    <>
      {search.backfill ? <BackfillCard key={search.backfill} id={search.backfill} /> : null}
      <Filters active={active}>
        <TextFilter name="job" value={search.job} label="Job id" wide />
        <ChoiceFilter name="state" value={search.state} label="State" options={STATES} />
      </Filters>
      <Card flush>
        <List
          label="Backfills" list={list} after={search.after} rowKey={idOf} columns={COLUMNS} marked={(backfill) => backfill.id === search.backfill}
          empty={
            active.length > 0 ? (
              <Empty title="No backfill matches.">Clear the filters to see all backfills.</Empty>
            ) : (
              <Empty title="No backfills yet" command="mainspring backfill create JOB --from 2026-01-01T00:00:00Z --to 2026-01-02T00:00:00Z">
                A backfill runs fires of the past that have no run. Start one from the missed fires, or with:
              </Empty>
            )
          }
        />
      </Card>
    </>
  );
}
