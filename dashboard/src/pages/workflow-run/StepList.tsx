// The steps as a list: what the graph shows, for everybody.
import { Link, useSearch } from "@tanstack/react-router";
import type { StepRunList, StepRunView, WorkflowRunView } from "../../api/schema";
import { duration, errorLine } from "../../lib/format";
import { ChoiceFilter, Filters } from "../../ui/Filters";
import { List } from "../../ui/List";
import { Card, Empty } from "../../ui/Page";
import { StateMark } from "../../ui/StateMark";
import type { Column } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { useKeyset } from "../../ui/useKeyset";
import { membersOf } from "./members";

const STATES: [string, string][] = [["FAILED", "Failed"], ["RUNNING", "Running"], ["SUCCESS", "Succeeded"], ["WAITING", "Waiting"], ["SKIPPED", "Skipped"]];

export const STEP_COLUMNS: Column<StepRunView>[] = [
  { key: "state", head: "State", phone: "first", cell: (step) => <StateMark state={step.status ?? "WAITING"} /> },
  {
    key: "name", head: "Step", phone: "first", grow: true,
    cell: (step) => {
      const name = step.index === null || step.index === undefined ? step.name : `${step.name} [${step.index}]`;
      return step.run_id ? (
        <Link to="/runs/$run" params={{ run: step.run_id }}>
          {name}
        </Link>
      ) : (
        name
      );
    },
  },
  { key: "task", head: "Task", phone: "none", cut: true, room: 1, cell: (step) => step.task },
  { key: "map", head: "Members", cell: (step) => membersOf(step) },
  { key: "started", head: "Started", cell: (step) => <Time at={step.start_time} /> },
  { key: "took", head: "Took", align: "end", cell: (step) => duration(step.duration) },
  { key: "attempt", head: "Attempt", align: "end", phone: "none", room: 1, cell: (step) => (step.attempt_number ? `${step.attempt_number} of ${step.max_attempts}` : "") },
  { key: "rerun", head: "Rerun", align: "end", phone: "none", room: 2, cell: (step) => step.rerun || "" },
  { key: "reason", head: "Error or reason", grow: true, cell: (step) => errorLine(step.error_message ?? step.reason ?? "") },
];

export function StepList({ run }: { run: WorkflowRunView }) {
  const search = useSearch({ from: "/workflows/$workflow/runs/$run" });
  const list = useKeyset<StepRunList, StepRunView>({
    path: `/v1/workflow-runs/${encodeURIComponent(run.run_id)}/steps`, query: { status: search.status }, after: search.after,
    rows: (body) => body.steps, next: (body) => body.next, id: (step) => step.name, everyMs: 2000,
  });
  return (
    <>
      <Filters active={search.status === undefined ? [] : ["status"]}>
        <ChoiceFilter name="status" value={search.status} label="State" options={STATES} />
      </Filters>
      <Card flush>
        <List label="Steps" list={list} after={search.after} rowKey={(step) => step.name} columns={STEP_COLUMNS} empty={<Empty title="No step matches." />} />
      </Card>
    </>
  );
}
