// What a run belongs to, with links: task, queue, what created it, and the workflow run that it is a step of.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { get } from "../../api/client";
import { runPath } from "../../api/queries";
import type { RunView } from "../../api/schema";
import { shortId } from "../../lib/format";

const BY: Record<string, string> = { manual: "hand", event: "the event", parent: "a step of" };
const OF_SCHEDULE: Record<string, string> = { FUTURE: "its time", IMMEDIATE: "its submission", AFTER: "the jobs before it", MANUAL: "hand" };

function byWhat(run: RunView, kind: string, type: string | undefined): string {
  if (kind !== "schedule") return BY[kind] ?? kind;
  return (type === undefined ? undefined : OF_SCHEDULE[type]) ?? (run.run_id === run.job_id ? "its submission" : "its schedule");
}


/** `type`: of the schedule of its job, once it is known. */
export function Lead({ run, type }: { run: RunView; type: string | undefined }) {
  const [kind = "", id] = run.trigger.split(":", 2);
  return (
    <>
      <Link to="/runs" search={{ task: run.task }} title="Runs of this task">
        <code>{run.task}</code>
      </Link>{" "}
      in queue{" "}
      <Link to="/runs" search={{ queue: run.queue }} title="Runs of this queue">
        {run.queue}
      </Link>
      , {run.priority} priority, by {byWhat(run, kind, type)}
      {kind === "event" ? (
        <>
          {" "}
          <Link to="/events/$event" params={{ event: run.trigger.slice("event:".length) }}>
            {run.trigger.slice("event:".length)}
          </Link>
        </>
      ) : null}
      {run.created_by ? <> of {run.created_by.name}</> : null}
      {(kind === "replay" || kind === "parent") && id ? (
        <>
          {kind === "replay" ? " of " : " "}
          <Link to="/runs/$run" params={{ run: id }}>
            {shortId(id)}
          </Link>
        </>
      ) : null}
      {run.backfill_id ? (
        <>
          {" "}
          <Link to="/operations" search={{ tab: "backfills", backfill: run.backfill_id }} title={run.backfill_id}>
            {shortId(run.backfill_id)}
          </Link>
        </>
      ) : null}
      {run.workflow_run_id ? <OfWorkflow run={run} flow={run.workflow_run_id} /> : null}
    </>
  );
}

/** The workflow run has the id of the workflow: that of its job. */
function OfWorkflow({ run, flow }: { run: RunView; flow: string }) {
  const own = flow === run.run_id;
  const found = useQuery({
    queryKey: ["flow-of-step", flow],
    queryFn: ({ signal }) => get<RunView>(runPath(flow), {}, signal),
    enabled: !own,
    staleTime: Infinity,
  });
  const workflow = own ? run.job_id : found.data?.job_id;
  if (workflow === undefined) return null;
  return (
    <>
      {own ? ", with the steps of " : ", a step of "}
      <Link to="/workflows/$workflow/runs/$run" params={{ workflow, run: flow }} search={run.step ? { step: run.step } : {}}>
        {own ? "its workflow" : `workflow ${workflow}`}
      </Link>
    </>
  );
}
