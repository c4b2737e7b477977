import { useQueryClient } from "@tanstack/react-query";
import { RotateCcw, SquareX } from "lucide-react";
import { useState } from "react";
import { change } from "../../api/client";
import { isLive } from "../../api/queries";
import type { WorkflowRunView } from "../../api/schema";
import type { Same } from "../../ui/AsCommand";
import { Button } from "../../ui/Button";
import { Confirm } from "../../ui/Dialog";
import { say } from "../../ui/Toasts";

type Verb = "cancel" | "failed" | "from";

export function RunVerbs({ run, step }: { run: WorkflowRunView; step: string | undefined }) {
  const [verb, setVerb] = useState<Verb | null>(null);
  // The run as it was shown when the dialog opened: what came since then has not been seen.
  const [seen, setSeen] = useState(run.etag);
  const ask = (asked: Verb): void => {
    setSeen(run.etag);
    setVerb(asked);
  };
  const client = useQueryClient();
  const path = `/v1/workflow-runs/${encodeURIComponent(run.run_id)}`;
  const renew = (): void => void client.invalidateQueries({ queryKey: ["workflow-run", run.run_id] });
  const send = (name: string, body: unknown, done: string) => async (): Promise<void> => {
    await change("POST", `${path}:${name}`, seen, body);
    say(done);
    renew();
  };
  const same = (name: "cancel" | "rerun", body: object, from: string[]): Same => ({
    command: ["workflow", name, run.run_id, ...from.flatMap((one) => ["--from", one])], method: "POST", path: `${path}:${name}`, body,
    python: [name === "cancel" ? "cancel_workflow_run" : "rerun_workflow", run.run_id, ...from],
  });
  const shared = { onClose: () => setVerb(null), onConflict: renew };
  return (
    <>
      {isLive(run.status) ? (
        <Button needs="workflow_runs.cancel" icon={<SquareX size={14} />} onClick={() => ask("cancel")}>Cancel</Button>
      ) : (
        <>
          {run.status === "SUCCESS" ? null : <Button kind="primary" needs="workflow_runs.rerun" icon={<RotateCcw size={14} />} onClick={() => ask("failed")}>Rerun what failed</Button>}
          {step ? <Button needs="workflow_runs.rerun" icon={<RotateCcw size={14} />} onClick={() => ask("from")}>Rerun from {step}</Button> : null}
        </>
      )}
      {verb === "cancel" ? (
        <Confirm title={`Cancel this run of ${run.name}?`} verb="Cancel the run" operation="workflow_runs.cancel" danger act={send("cancel", {}, "Stopping: until its last step has ended.")} {...shared} same={same("cancel", {}, [])}>
          <p>Steps that run are stopped, and the others never start. The run ends with the last of them.</p>
        </Confirm>
      ) : null}
      {verb === "failed" ? (
        <Confirm title="Rerun what did not succeed?" verb="Rerun" act={send("rerun", {}, "The steps run again.")} {...shared} same={same("rerun", {}, [])}>
          <p>Steps that did not succeed run again, with all that follows them. Of a map, the members that did not. Results of the others are kept.</p>
        </Confirm>
      ) : null}
      {verb === "from" && step ? (
        <Confirm title={`Rerun from ${step}?`} verb="Rerun" act={send("rerun", { from: step }, "The steps run again.")} {...shared} same={same("rerun", { from: step }, [step])}>
          <p>{step} runs again, with all that follows it. Results before it are kept.</p>
        </Confirm>
      ) : null}
    </>
  );
}
