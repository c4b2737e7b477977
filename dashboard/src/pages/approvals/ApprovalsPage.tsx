// Waiting for you: steps of workflows that go on when a person has decided.
import { Link, useSearch } from "@tanstack/react-router";
import type { ApprovalList, ApprovalView } from "../../api/schema";
import { ChoiceFilter, Filters } from "../../ui/Filters";
import { List } from "../../ui/List";
import { Card, Empty, Page } from "../../ui/Page";
import type { Column } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { useKeyset } from "../../ui/useKeyset";
import { PATH } from "./approvals";
import { Decide } from "./Decide";

const keyOf = (one: ApprovalView): string => one.run_id;

export function ApprovalsPage() {
  const search = useSearch({ from: "/approvals" });
  const list = useKeyset<ApprovalList, ApprovalView>({
    path: PATH, query: { everybody: search.of === "everybody" || undefined }, after: search.after,
    rows: (body) => body.approvals, next: (body) => body.next, id: keyOf,
  });
  return (
    <Page title="Waiting for you" lead="Steps of workflows that go on when somebody has decided.">
      <Filters active={search.of === undefined ? [] : ["of"]}>
        <ChoiceFilter name="of" value={search.of} label="Decided by" none="you" options={[["everybody", "Everybody"]]} />
      </Filters>
      <Card flush>
        <List
          label="Approvals" list={list} after={search.after} rowKey={keyOf} columns={[...COLUMNS, { key: "verbs", head: <span className="sr">Verbs</span>, cell: (one) => <Decide approval={one} onDecided={list.showNew} /> }]}
          empty={<Empty title="Nothing waits for you">A step of a workflow with wait: {"{approval: release}"} would be here until somebody decides.</Empty>}
        />
      </Card>
    </Page>
  );
}

const COLUMNS: Column<ApprovalView>[] = [
  {
    key: "approval", head: "Approval", phone: "first", grow: true,
    cell: (one) => (
      <Link to="/runs/$run" params={{ run: one.run_id }} title={one.approval}>
        {one.approval}
      </Link>
    ),
  },
  {
    key: "workflow", head: "Workflow", cut: true,
    cell: (one) => (
      <Link to="/workflows/$workflow/runs/$run" params={{ workflow: one.workflow_id, run: one.workflow_run_id }} search={{ step: one.step }}>
        {one.workflow_id}
      </Link>
    ),
  },
  { key: "step", head: "Step", phone: "none", cut: true, room: 1, cell: (one) => one.step },
  { key: "since", head: "Waits since", cell: (one) => <Time at={one.waits_since} /> },
  { key: "until", head: "Times out", phone: "none", room: 1, cell: (one) => <Time at={one.times_out_at ?? null} none="never" /> },
  { key: "by", head: "Decided by", phone: "none", cut: true, room: 2, cell: (one) => <span title={one.by.join("\n")}>{one.by.join(", ")}</span> },
];
