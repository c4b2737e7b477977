import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { Pause, Pencil, Play, SquareX, Zap } from "lucide-react";
import { lazy, Suspense, useState } from "react";
import { change, get } from "../../api/client";
import type { RunNowAccepted, WorkflowRunBrief, WorkflowRunList, WorkflowView } from "../../api/schema";
import { duration, plural, shortId } from "../../lib/format";
import type { Same } from "../../ui/AsCommand";
import { Button } from "../../ui/Button";
import { Confirm } from "../../ui/Dialog";
import { List } from "../../ui/List";
import { Card, Empty, Page, Skeleton } from "../../ui/Page";
import { parsed, PayloadEditor, type Schema } from "../../ui/PayloadEditor";
import { ProblemBox } from "../../ui/Problem";
import { StateMark } from "../../ui/StateMark";
import type { Column } from "../../ui/Table";
import { Tabs } from "../../ui/Tabs";
import { JobZone, Time } from "../../ui/Time";
import { useKeyset } from "../../ui/useKeyset";
import { Definition } from "./Definition";
import { EditDefinition } from "./EditDefinition";
import { RunGrid } from "./RunGrid";
import { Versions } from "./Versions";

const Trends = lazy(() => import("../job/Trends"));
const VIEWS = ["grid", "trend", "definition", "versions", "edit"];

const COLUMNS: Column<WorkflowRunBrief>[] = [
  { key: "state", head: "State", phone: "first", cell: (run) => <StateMark state={run.status} /> },
  {
    key: "run", head: "Run", phone: "first",
    cell: (run) => (
      <Link to="/workflows/$workflow/runs/$run" params={{ workflow: run.workflow_id, run: run.run_id }} className="mono" title={run.run_id}>
        {shortId(run.run_id)}
      </Link>
    ),
  },
  { key: "for", by: (run) => run.scheduled_for, head: "Scheduled for", cell: (run) => <Time at={run.scheduled_for} /> },
  { key: "took", by: (run) => run.duration, head: "Took", align: "end", cell: (run) => duration(run.duration) },
  { key: "steps", head: "Steps", cell: (run) => Object.entries(run.counts).map(([state, number]) => `${number} ${state.toLowerCase()}`).join(", ") || plural(run.step_count, "step") },
  { key: "reruns", head: "Reruns", align: "end", phone: "none", cell: (run) => run.reruns || "" },
  { key: "version", head: "Definition", align: "end", phone: "none", cell: (run) => `v${run.definition_version}` },
  { key: "reason", head: "Reason", grow: true, cell: (run) => <span title={run.reason ?? ""}>{run.reason}</span> },
];

export function WorkflowPage() {
  const { workflow: id } = useParams({ from: "/workflows/$workflow" });
  const { after, view, step, w, from, to } = useSearch({ from: "/workflows/$workflow" });
  const path = `/v1/workflows/${encodeURIComponent(id)}`;
  const found = useQuery({ queryKey: ["workflow", id], queryFn: ({ signal }) => get<WorkflowView>(path, {}, signal), refetchInterval: 5000 });
  const list = useKeyset<WorkflowRunList, WorkflowRunBrief>({
    path: `${path}/runs`, query: {}, after, rows: (body) => body.runs, next: (body) => body.next, id: (run) => run.run_id, everyMs: 2000,
  });
  const flow = found.data;
  const shown = view !== undefined && VIEWS.includes(view) ? view : "runs";
  if (flow === undefined)
    return <Page title={id}>{found.isPending ? <Skeleton /> : <ProblemBox error={found.error} retry={() => void found.refetch()} />}</Page>;
  return (
    <JobZone value={flow.timezone}>
      <Page
        title={flow.name}
        heading={
          <>
            <span className="wrap">{flow.name}</span> <StateMark state={flow.status} />
          </>
        }
        lead={
          <>
            {flow.schedule_in_words || flow.schedule} · {plural(flow.step_count, "step")} · definition v{flow.definition_version}
            {flow.next_fire_at ? <> · next <Time at={flow.next_fire_at} focusable /></> : null}
          </>
        }
        actions={<Verbs flow={flow} path={path} />}
      >
        <Tabs label="Workflow" name="view" value={shown} tabs={[["runs", "Runs"], ["grid", "Runs and steps"], ["trend", "Durations"], ["definition", "Definition"], ["versions", "Versions"]]} clears={["step", "w", "from", "to"]} />
        {shown === "definition" ? <Definition flow={flow} chosen={step} /> : null}
        {shown === "edit" ? <EditDefinition flow={flow} path={path} /> : null}
        {shown === "versions" ? <Versions flow={flow} path={path} from={from} to={to} /> : null}
        {shown === "trend" ? <Suspense fallback={<Skeleton />}><Trends job={id} w={w} /></Suspense> : null}
        {shown === "grid" ? <RunGrid flow={flow} list={list} /> : null}
        {shown === "runs" ? (
          <Card flush title="Runs">
            <List label="Runs of the workflow" list={list} after={after} rowKey={(run) => run.run_id} columns={COLUMNS} empty={<Empty title="It has not run yet">Run it now, or wait for its next fire.</Empty>} />
          </Card>
        ) : null}
      </Page>
    </JobZone>
  );
}

/** A field for each parameter, of the type of its default. */
function schemaOf(parameters: Record<string, unknown>): Schema {
  const typeOf = (value: unknown): string => (typeof value === "string" ? "string" : typeof value === "number" ? "number" : typeof value === "boolean" ? "boolean" : "object");
  return { properties: Object.fromEntries(Object.entries(parameters).map(([name, value]) => [name, { type: typeOf(value), default: value }])) };
}

type Verb = "run" | "pause" | "resume" | "cancel";

function Verbs({ flow, path }: { flow: WorkflowView; path: string }) {
  const [verb, setVerb] = useState<Verb | null>(null);
  // The version that was shown when the dialog opened: what came since then has not been seen.
  const [version, setVersion] = useState(flow.version);
  const ask = (asked: Verb): void => {
    setVersion(flow.version);
    setVerb(asked);
  };
  const client = useQueryClient();
  const navigate = useNavigate();
  const [text, setText] = useState(Object.keys(flow.parameters).length === 0 ? "" : JSON.stringify(flow.parameters, null, 2));
  const renew = (): void => void client.invalidateQueries({ queryKey: ["workflow", flow.workflow_id] });
  const creator = flow.created_by?.id ?? null;
  const shared = { onClose: () => setVerb(null), onConflict: renew, creator };
  const runNow = async (): Promise<void> => {
    const value = parsed(text);
    if (value === null) throw new Error("The parameters are no valid JSON.");
    const body = value.value === undefined ? {} : { parameters: value.value };
    const run = await change<RunNowAccepted>("POST", `${path}:runNow`, version, body);
    await navigate({ to: "/workflows/$workflow/runs/$run", params: { workflow: flow.workflow_id, run: run.run_id } });
  };
  const given = parsed(text)?.value;
  const same: Same = {
    command: ["workflow", "run", flow.workflow_id, ...Object.entries((given ?? {}) as object).map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`)],
    method: "POST", path: `${path}:runNow`, body: given === undefined ? {} : { parameters: given }, python: ["start_workflow", flow.workflow_id, ...(given === undefined ? [] : [given])],
  };
  const sameOf = (name: "pause" | "resume"): Same => ({
    command: ["workflow", name, flow.workflow_id], method: "POST", path: `${path}:${name}`, body: {}, python: [`${name}_workflow`, flow.workflow_id],
  });
  const turn = (name: string) => async (): Promise<void> => {
    await change("POST", `${path}:${name}`, version, {});
    renew();
  };
  const cancel = async (): Promise<void> => {
    await change("DELETE", path, version);
    renew();
  };
  return (
    <>
      <Button kind="primary" needs="workflows.run_now" creator={creator} icon={<Zap size={14} />} onClick={() => ask("run")}>Run now</Button>
      {flow.status === "CANCELLED" ? null : <Button needs="workflows.update" creator={creator} icon={<Pencil size={14} />} onClick={() => void navigate({ to: ".", search: { view: "edit" } as never })}>Edit</Button>}
      {flow.status === "PAUSED" ? <Button needs="workflows.resume" creator={creator} icon={<Play size={14} />} data-key="." onClick={() => ask("resume")}>Resume</Button> : flow.next_fire_at ? <Button needs="workflows.pause" creator={creator} icon={<Pause size={14} />} data-key="." onClick={() => ask("pause")}>Pause</Button> : null}
      {flow.status === "CANCELLED" ? null : <Button needs="workflows.cancel" creator={creator} icon={<SquareX size={14} />} onClick={() => ask("cancel")}>Cancel for good</Button>}
      {verb === "run" ? (
        <Confirm title={`Run ${flow.name} now?`} verb="Run now" act={runNow} {...shared} same={same}>
          <p>It runs once, beside its schedule.</p>
          {Object.keys(flow.parameters).length > 0 ? <PayloadEditor name="parameters" schema={schemaOf(flow.parameters)} text={text} onChange={setText} /> : null}
        </Confirm>
      ) : null}
      {verb === "pause" ? (
        <Confirm title={`Pause ${flow.name}?`} verb="Pause" act={turn("pause")} {...shared} same={sameOf("pause")}>
          <p>It does not fire until it is resumed. Runs that have started go on.</p>
        </Confirm>
      ) : null}
      {verb === "resume" ? (
        <Confirm title={`Resume ${flow.name}?`} verb="Resume" act={turn("resume")} {...shared} same={sameOf("resume")}>
          <p>It fires again by its schedule from now on.</p>
        </Confirm>
      ) : null}
      {verb === "cancel" ? (
        <Confirm
          title={`Cancel ${flow.name}?`} verb="Cancel the workflow" danger act={cancel} {...shared}
          same={{ command: ["workflow", "delete", flow.workflow_id], method: "DELETE", path, python: ["delete_workflow", flow.workflow_id] }}
        >
          <p>The workflow ends: it fires no more, and cannot be resumed. To stop it for a while, pause it. Its live runs are stopped.</p>
        </Confirm>
      ) : null}
    </>
  );
}
