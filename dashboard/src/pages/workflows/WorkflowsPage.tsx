import { Link, useSearch } from "@tanstack/react-router";
import type { WorkflowList, WorkflowView } from "../../api/schema";
import { count, duration } from "../../lib/format";
import { ChoiceFilter, Filters, TextFilter } from "../../ui/Filters";
import { List } from "../../ui/List";
import { Card, Empty, Page } from "../../ui/Page";
import { StateMark } from "../../ui/StateMark";
import type { Column } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { useKeyset } from "../../ui/useKeyset";

const STATES: [string, string][] = [
  ["SCHEDULED", "Scheduled"], ["RUNNING", "Running"], ["PAUSED", "Paused"], ["COMPLETED", "Completed"], ["FAILED", "Failed"], ["CANCELLED", "Cancelled"],
];
const ALL = STATES.map(([state]) => state).join(",");
const COLUMNS: Column<WorkflowView>[] = [
  { key: "state", head: "State", phone: "first", cell: (flow) => <StateMark state={flow.status} /> },
  {
    key: "name", head: "Workflow", phone: "first", grow: true,
    cell: (flow) => (
      <Link to="/workflows/$workflow" params={{ workflow: flow.workflow_id }} title={flow.workflow_id}>
        {flow.name}
      </Link>
    ),
  },
  { key: "steps", head: "Steps", align: "end", cell: (flow) => <>{count(flow.step_count)}<span className="onPhone"> {flow.step_count === 1 ? "step" : "steps"}</span></> },
  { key: "schedule", head: "Schedule", cell: (flow) => <span className="short" title={flow.schedule}>{flow.schedule_in_words || flow.schedule}</span> },
  { key: "next", head: "Next fire", cell: (flow) => <Time at={flow.next_fire_at} /> },
  {
    key: "last", head: "Last run",
    cell: (flow) =>
      flow.latest_run ? (
        <Link to="/workflows/$workflow/runs/$run" params={{ workflow: flow.workflow_id, run: flow.latest_run.run_id }}>
          <StateMark state={flow.latest_run.status} />
        </Link>
      ) : null,
  },
  { key: "took", head: "Took", align: "end", phone: "none", room: 1, cell: (flow) => duration(flow.latest_run?.duration) },
  { key: "owner", head: "Owner", phone: "none", cut: true, room: 2, cell: (flow) => flow.owner },
];

export function WorkflowsPage() {
  const search = useSearch({ from: "/workflows" });
  const list = useKeyset<WorkflowList, WorkflowView>({
    path: "/v1/workflows", query: { q: search.q, status: search.status ?? ALL }, after: search.after, rows: (body) => body.workflows,
    next: (body) => body.next, id: (flow) => flow.workflow_id,
  });
  const active = (["q", "status"] as const).filter((name) => search[name] !== undefined);
  return (
    <Page title="Workflows" lead="Jobs whose runs are graphs of steps.">
      <Filters active={active}>
        <TextFilter name="q" value={search.q} label="Name or id" wide />
        <ChoiceFilter name="status" value={search.status} label="State" options={STATES} />
      </Filters>
      <Card flush>
        <List
          label="Workflows" list={list} after={search.after} rowKey={(flow) => flow.workflow_id} columns={COLUMNS}
          empty={
            active.length > 0 ? (
              <Empty title="No workflow matches." />
            ) : (
              <Empty title="No workflows yet" command="mainspring workflow create nightly.yaml">
                A workflow names its steps and what each waits for, in code or in a file:
              </Empty>
            )
          }
        />
      </Card>
    </Page>
  );
}
