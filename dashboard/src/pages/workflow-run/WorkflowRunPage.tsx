import { useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearch } from "@tanstack/react-router";
import { get } from "../../api/client";
import { isLive } from "../../api/queries";
import type { WorkflowRunView } from "../../api/schema";
import { count, duration, plural, shortId } from "../../lib/format";
import { useSetSearch } from "../../ui/Filters";
import { Copy } from "../../ui/Copy";
import { Figure, Figures, Page, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { StateMark, words } from "../../ui/StateMark";
import { Choice } from "../../ui/Tabs";
import { Time } from "../../ui/Time";
import { Gantt } from "./Gantt";
import styles from "../run/RunPage.module.css";
import { Graph } from "./Graph";
import { StepList } from "./StepList";
import { StepPanel } from "./StepPanel";
import { RunVerbs } from "./RunVerbs";

type View = "graph" | "gantt" | "list";
const MOST_NODES = 1500;

export function WorkflowRunPage() {
  const { workflow, run: id } = useParams({ from: "/workflows/$workflow/runs/$run" });
  const search = useSearch({ from: "/workflows/$workflow/runs/$run" });
  const set = useSetSearch();
  const found = useQuery({
    queryKey: ["workflow-run", id],
    queryFn: ({ signal }) => get<WorkflowRunView>(`/v1/workflow-runs/${encodeURIComponent(id)}`, {}, signal),
    refetchInterval: (query) => (query.state.data === undefined || isLive(query.state.data.status) ? 1000 : 15_000),
  });
  const run = found.data;
  if (run === undefined)
    return <Page title="Workflow run">{found.isPending ? <Skeleton /> : <ProblemBox error={found.error} retry={() => void found.refetch()} />}</Page>;
  const large = run.steps.length > MOST_NODES;
  const view: View = search.view === "gantt" || search.view === "list" ? search.view : large ? "list" : "graph";
  // Nobody has chosen a step: the one that failed is what one has come for.
  const step = run.steps.find((one) => (search.step === undefined ? one.status === "FAILED" : one.name === search.step));
  return (
    <Page
      title={`${run.name} ${shortId(run.run_id)}`}
      heading={
        <>
          <StateMark state={run.status} large />
          <Link to="/workflows/$workflow" params={{ workflow }} className="wrap">
            {run.name}
          </Link>
          <span className={styles.id}>
            <code title={run.run_id}>{shortId(run.run_id)}</code>
            <Copy text={run.run_id} label="Copy the id of the run" />
          </span>
        </>
      }
      lead={
        <>
          {run.reason ?? `definition v${run.definition_version}${run.reruns > 0 ? ` · ${plural(run.reruns, "rerun")}` : ""}`}
          {run.parent_run_id ? (
            <>
              {" · of a step of "}
              <Link to="/runs/$run" params={{ run: run.parent_run_id }}>
                {shortId(run.parent_run_id)}
              </Link>
            </>
          ) : null}
        </>
      }
      actions={<RunVerbs run={run} step={step?.name} />}
    >
      <Figures>
        <Figure label="Scheduled for" value={<Time at={run.scheduled_for} focusable />} />
        <Figure label="Took" value={run.duration === null ? <Time at={run.start_time} none="not started" /> : duration(run.duration)} />
        <Figure label="Steps" value={count(run.step_count)} />
        {Object.entries(run.counts).map(([state, number]) => (
          <Figure key={state} label={words(state)} value={count(number)} tone={state === "FAILED" && number > 0 ? "failed" : undefined} />
        ))}
      </Figures>
      <Choice<View> label="View" value={view} options={[["graph", "Graph"], ["gantt", "Gantt"], ["list", "List"]]} onChange={(next) => set({ view: next })} />
      {run.next ? <p className="muted">The first {run.steps.length} of {run.step_count} steps are shown.</p> : null}
      {step ? <StepPanel run={run} step={step} /> : null}
      {view === "graph" ? (
        <Graph
          shape={`${run.workflow_id} ${run.definition_version} ${run.steps.length}`} steps={run.steps} edges={run.edges as [string, string][]}
          chosen={step?.name} onChoose={(name) => set({ step: name })}
        />
      ) : null}
      {view === "gantt" ? <Gantt run={run} onChoose={(name) => set({ step: name })} /> : null}
      {view === "list" ? <StepList run={run} /> : null}
    </Page>
  );
}
