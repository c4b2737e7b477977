// Two versions of a definition beside each other: the steps that came, went and changed.
import { useQuery } from "@tanstack/react-query";
import { get } from "../../api/client";
import type { StepIn, WorkflowView } from "../../api/schema";
import { plural } from "../../lib/format";
import { ChoiceFilter, Filters } from "../../ui/Filters";
import { Card, Empty, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { Members } from "../audit/Difference";
import styles from "./Workflow.module.css";

const MOST_VERSIONS = 50;
const ALL = 100_000;

export function Versions({ flow, path, from, to }: { flow: WorkflowView; path: string; from: string | undefined; to: string | undefined }) {
  const newest = flow.definition_version;
  const choices = Array.from({ length: Math.min(newest, MOST_VERSIONS) }, (_, index): [string, string] => [String(newest - index), `v${newest - index}${index === 0 ? ", the newest" : ""}`]);
  const old = Number(from) || Math.max(1, newest - 1);
  const now = Number(to) || newest;
  if (newest === 1) return <Empty title="There is one version">Each change of the steps makes another, and runs keep the one that they were fired with.</Empty>;
  return (
    <div className={styles.stack}>
      <Filters active={[]}>
        <ChoiceFilter name="from" value={from} label="From" options={choices} none={`v${Math.max(1, newest - 1)}`} />
        <ChoiceFilter name="to" value={to} label="To" options={choices} none={`v${newest}, the newest`} />
      </Filters>
      <Compared path={path} old={old} now={now} />
    </div>
  );
}

function useVersion(path: string, version: number) {
  return useQuery({ queryKey: ["workflow-version", path, version], queryFn: ({ signal }) => get<WorkflowView>(path, { definition: version }, signal), staleTime: Infinity, retry: false });
}

function Compared({ path, old, now }: { path: string; old: number; now: number }) {
  const [before, after] = [useVersion(path, old), useVersion(path, now)];
  const error = before.error ?? after.error;
  if (error) return <ProblemBox error={error}><p>A version that no run has any more is deleted some days after it was replaced.</p></ProblemBox>;
  if (before.data === undefined || after.data === undefined) return <Skeleton />;
  const was = new Map(before.data.steps?.map((step) => [step.name, step]));
  const is = new Map(after.data.steps?.map((step) => [step.name, step]));
  const changes = [...new Set([...was.keys(), ...is.keys()])].filter((name) => JSON.stringify(was.get(name)) !== JSON.stringify(is.get(name)));
  const same = [...is.keys()].filter((name) => was.has(name)).length - changes.filter((name) => was.has(name) && is.has(name)).length;
  return (
    <Card title={changes.length === 0 ? `v${old} and v${now} have the same steps` : `v${old} → v${now}: ${plural(changes.length, "step")} differ`.replace("1 step differ", "1 step differs")} aside={<span className="muted">{plural(same, "step")} alike</span>}>
      {changes.map((name) => (
        <Step key={name} name={name} was={was.get(name)} is={is.get(name)} />
      ))}
    </Card>
  );
}

function Step({ name, was, is }: { name: string; was: StepIn | undefined; is: StepIn | undefined }) {
  return (
    <section className={styles.change} aria-label={`Step ${name}`}>
      <h3 className="wrap">{name} <span className="muted">{was === undefined ? "is new" : is === undefined ? "is gone" : "has changed"}</span></h3>
      <Members before={(was ?? {}) as Record<string, unknown>} after={(is ?? {}) as Record<string, unknown>} most={ALL} />
    </section>
  );
}
