// The definition of a workflow: its graph, what the chosen step does, and the whole as JSON.
import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import type { StepIn, WorkflowView } from "../../api/schema";
import { duration, plural } from "../../lib/format";
import { Copy } from "../../ui/Copy";
import { useSetSearch } from "../../ui/Filters";
import { Json } from "../../ui/Json";
import { Card, Facts } from "../../ui/Page";
import { Graph } from "../workflow-run/Graph";
import { doesOf } from "./doesOf";
import styles from "./Workflow.module.css";

const MOST_NODES = 1500;

export function Definition({ flow, chosen }: { flow: WorkflowView; chosen: string | undefined }) {
  const set = useSetSearch();
  const steps = flow.steps;
  const graph = useMemo(() => steps.map((step) => ({ name: step.name, status: null, does: doesOf(step) })), [steps]);
  const edges = useMemo(() => steps.flatMap((step) => (step.depends_on ?? []).map((parent): [string, string] => [parent, step.name])), [steps]);
  const step = steps.find((one) => one.name === chosen);
  return (
    <div className={styles.stack}>
      {step ? <StepCard step={step} /> : null}
      {steps.length > MOST_NODES ? (
        <p className="muted">A graph of {plural(steps.length, "step")} is not drawn. The definition can be copied.</p>
      ) : (
        <Graph shape={`${flow.workflow_id} ${flow.definition_version} ${steps.length}`} steps={graph} edges={edges} chosen={chosen} onChoose={(name) => set({ step: name })} />
      )}
      <Card title="Settings" aside={<Copy text={JSON.stringify(flow, null, 2)} label="Copy the workflow as JSON" />}>
        <Facts
          rows={[
            ["Schedule", flow.schedule],
            ["Zone", flow.timezone ?? ""],
            ["Calendar", flow.calendar ? <Link to="/calendars/$calendar" params={{ calendar: flow.calendar }}>{flow.calendar}</Link> : ""],
            ["Queue", flow.queue],
            ["Priority", flow.priority],
            ["Timeout of a run", duration(flow.timeout)],
            ["When late", `misfire ${flow.misfire.policy}`],
            ["When one is alive", `overlap ${flow.overlap}`],
            ["Owner", flow.owner ?? ""],
            ["Labels", Object.entries(flow.labels).map(([key, value]) => `${key}=${value}`).join(", ")],
            ["Description", flow.description ?? ""],
            ["Version", `${flow.version}, definition ${flow.definition_version}, generation ${flow.generation}`],
          ]}
        />
      </Card>
      {Object.keys(flow.parameters).length > 0 ? (
        <Card title="Parameters">
          <Json value={flow.parameters} label="parameters" />
        </Card>
      ) : null}
    </div>
  );
}

function StepCard({ step }: { step: StepIn }) {
  return (
    <Card title={step.name} aside={<span className="muted">{step.depends_on?.length ? `after ${step.depends_on.join(", ")}` : "begins at once"}</span>}>
      <Json value={step} label={`step ${step.name}`} />
    </Card>
  );
}
