// The chosen step: what became of it, its run, the members of a map.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { get } from "../../api/client";
import type { StepRunList, StepRunView, WorkflowRunView } from "../../api/schema";
import { duration, plain } from "../../lib/format";
import { Card, Facts } from "../../ui/Page";
import { StateMark } from "../../ui/StateMark";
import { Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { DecideStep, waitsForApproval } from "../approvals/Decide";
import styles from "./Graph.module.css";
import { STEP_COLUMNS } from "./StepList";

export function StepPanel({ run, step }: { run: WorkflowRunView; step: StepRunView }) {
  return (
    <Card
      title={
        <span className={styles.verbs}>
          {step.name} <StateMark state={step.status ?? "WAITING"} />
        </span>
      }
      aside={step.run_id ? <Link to="/runs/$run" params={{ run: step.run_id }}>Log and timeline</Link> : null}
    >
      <div className={styles.panel}>
        {step.error_message ? <pre className="wrap">{plain(step.error_message).slice(0, 2000)}</pre> : null}
        <Facts
          rows={[
            ["Reason", step.reason ?? ""],
            ["Task", step.task],
            ...(step.child_run_id ? [["Runs", <Link key="c" to="/runs/$run" params={{ run: step.child_run_id }}>the workflow run {step.child_run_id.slice(-8)}</Link>] as [string, ReactNode]] : []),
            ["After", step.depends_on?.join(", ") ?? ""],
            ["Started", <Time key="s" at={step.start_time} focusable none="not yet" />],
            ["Took", duration(step.duration)],
            ...(step.attempt_number ? [["Attempt", `${step.attempt_number} of ${step.max_attempts}`] as [string, string]] : []), // members of a map have their own
          ]}
        />
        {step.run_id && waitsForApproval(step) ? <DecideStep run={step.run_id} /> : null}
        {step.map ? <Members run={run} step={step} /> : null}
      </div>
    </Card>
  );
}

function Members({ run, step }: { run: WorkflowRunView; step: StepRunView }) {
  const found = useQuery({
    queryKey: ["workflow-run", run.run_id, "members", step.name],
    queryFn: ({ signal }) => get<StepRunList>(`/v1/workflow-runs/${run.run_id}/steps`, { name: step.name, members: true, limit: 50 }, signal),
    refetchInterval: 3000,
  });
  const members = found.data?.steps ?? [];
  if (members.length === 0) return null;
  return <Table label={`Members of ${step.name}`} columns={STEP_COLUMNS} rows={members} rowKey={(member) => String(member.index)} />;
}
