// The newest runs of a workflow beside each other: a column for each run with how long it took, a row for each step.
import { useQueries } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { get } from "../../api/client";
import { isLive } from "../../api/queries";
import type { StepRunView, WorkflowRunBrief, WorkflowRunView, WorkflowView } from "../../api/schema";
import { duration, plural } from "../../lib/format";
import { usePreferences } from "../../lib/preferences";
import { absolute, zoneOf } from "../../lib/time";
import hues from "../../ui/hues.module.css";
import { Card, Empty, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { heightOf } from "../../ui/RunBars";
import { hueOf, StateShape, words } from "../../ui/StateMark";
import type { Keyset } from "../../ui/useKeyset";
import styles from "./Workflow.module.css";

const MOST_RUNS = 15;
const MOST_STEPS = 200;

export function RunGrid({ flow, list }: { flow: WorkflowView; list: Keyset<WorkflowRunBrief> }) {
  const { zone } = usePreferences();
  const newest = list.rows.slice(0, MOST_RUNS).reverse();
  const found = useQueries({
    queries: newest.map((run) => ({
      queryKey: ["workflow-run", run.run_id],
      queryFn: ({ signal }: { signal: AbortSignal }) => get<WorkflowRunView>(`/v1/workflow-runs/${encodeURIComponent(run.run_id)}`, {}, signal),
      refetchInterval: isLive(run.status) ? 2000 : (false as const),
    })),
  });
  if (list.pending) return <Skeleton />;
  if (list.error !== null) return <ProblemBox error={list.error} retry={list.retry} />;
  if (newest.length === 0) return <Empty title="It has not run yet">Run it now, or wait for its next fire.</Empty>;
  const states = found.map((one) => new Map((one.data?.steps ?? []).map((step) => [step.name, step])));
  const names = rowsOf(flow, states);
  const longest = Math.max(0.001, ...newest.map((run) => run.duration ?? 0));
  const when = (run: WorkflowRunBrief): string => absolute(Date.parse(run.scheduled_for), zoneOf(zone));
  return (
    <Card flush title={`The newest ${plural(newest.length, "run")}`} aside={<span className="muted">newest at the right; the bars say how long each took</span>}>
      <div className={styles.scroll} tabIndex={0} role="group" aria-label="Runs and steps">
        <table className={styles.grid}>
          <thead>
            <tr>
              <th scope="col">Step</th>
              {newest.map((run) => (
                <th key={run.run_id} scope="col">
                  <Link
                    to="/workflows/$workflow/runs/$run" params={{ workflow: run.workflow_id, run: run.run_id }} className={`${styles.column} ${hues[hueOf(run.status)]}`}
                    aria-label={`${words(run.status)} ${duration(run.duration)} ${when(run)}`} title={`${words(run.status)} · ${duration(run.duration) || "not ended"} · ${when(run)}`}
                  >
                    <span style={{ height: `${heightOf(run, longest)}%` }} />
                  </Link>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {names.slice(0, MOST_STEPS).map((name) => (
              <tr key={name}>
                <th scope="row" className="cut" title={name}>{name}</th>
                {newest.map((run, at) => (
                  <td key={run.run_id}>
                    <Cell run={run} name={name} step={states[at]?.get(name)} loaded={found[at]?.data !== undefined} />
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {names.length > MOST_STEPS ? <p className={styles.more}>The first {MOST_STEPS} of {plural(names.length, "step")} are shown.</p> : null}
    </Card>
  );
}

function Cell({ run, name, step, loaded }: { run: WorkflowRunBrief; name: string; step: StepRunView | undefined; loaded: boolean }) {
  if (step === undefined) return loaded ? <span className="muted" title="not in this definition">–</span> : null;
  const state = step.status ?? "WAITING";
  return (
    <Link
      to="/workflows/$workflow/runs/$run" params={{ workflow: run.workflow_id, run: run.run_id }} search={{ step: name } as never} className={styles.cell}
      aria-label={`${name}: ${words(state)} ${duration(step.duration)}`} title={`${name}: ${words(state)} ${duration(step.duration)}${step.reason ? ` · ${step.reason}` : ""}`}
    >
      <StateShape state={state} />
    </Link>
  );
}

/** The steps of the definition in its order, then those that only older runs have. */
function rowsOf(flow: WorkflowView, states: ReadonlyMap<string, StepRunView>[]): string[] {
  const names = new Set(flow.steps.map((step) => step.name));
  for (const run of states) for (const name of run.keys()) names.add(name);
  return [...names];
}
