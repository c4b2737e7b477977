import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { post } from "../../api/client";
import { isLive } from "../../api/queries";
import type { WorkflowRunView } from "../../api/schema";
import { Button } from "../../ui/Button";
import { Confirm } from "../../ui/Dialog";
import { say } from "../../ui/Toasts";

export function RunVerbs({ run, step }: { run: WorkflowRunView; step: string | undefined }) {
  const [verb, setVerb] = useState<"cancel" | "failed" | "from" | null>(null);
  const client = useQueryClient();
  const path = `/v1/workflow-runs/${encodeURIComponent(run.run_id)}`;
  const send = (name: string, body: unknown, done: string) => async (): Promise<void> => {
    await post(`${path}:${name}`, body);
    say(done);
    await client.invalidateQueries({ queryKey: ["workflow-run", run.run_id] });
  };
  const onClose = (): void => setVerb(null);
  return (
    <>
      {isLive(run.status) ? (
        <Button onClick={() => setVerb("cancel")}>Cancel</Button>
      ) : (
        <>
          {run.status === "SUCCESS" ? null : <Button kind="primary" onClick={() => setVerb("failed")}>Rerun what failed</Button>}
          {step ? <Button onClick={() => setVerb("from")}>Rerun from {step}</Button> : null}
        </>
      )}
      {verb === "cancel" ? (
        <Confirm title={`Cancel this run of ${run.name}?`} verb="Cancel the run" danger act={send("cancel", {}, "The run is cancelled.")} onClose={onClose}>
          <p>Steps that run are stopped, and the others never start.</p>
        </Confirm>
      ) : null}
      {verb === "failed" ? (
        <Confirm title="Rerun what did not succeed?" verb="Rerun" act={send("rerun", {}, "The steps run again.")} onClose={onClose}>
          <p>Steps that did not succeed run again, with all that follows them. Results of the others are kept.</p>
        </Confirm>
      ) : null}
      {verb === "from" && step ? (
        <Confirm title={`Rerun from ${step}?`} verb="Rerun" act={send("rerun", { from: step }, "The steps run again.")} onClose={onClose}>
          <p>{step} runs again, with all that follows it. Results before it are kept.</p>
        </Confirm>
      ) : null}
    </>
  );
}
