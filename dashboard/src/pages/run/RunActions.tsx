import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { RotateCcw, SquareX } from "lucide-react";
import { useState } from "react";
import { post } from "../../api/client";
import { isLive, runPath, useSchema } from "../../api/queries";
import type { RunView } from "../../api/schema";
import { Button } from "../../ui/Button";
import { Confirm } from "../../ui/Dialog";
import { parsed, PayloadEditor } from "../../ui/PayloadEditor";
import { say } from "../../ui/Toasts";

export function RunActions({ run }: { run: RunView }) {
  const [verb, setVerb] = useState<"cancel" | "replay" | null>(null);
  const [told, setTold] = useState(false);
  const client = useQueryClient();
  const cancel = async (): Promise<void> => {
    await post(`${runPath(run.run_id)}:cancel`);
    setTold(true);
    await client.invalidateQueries({ queryKey: ["run", run.run_id] });
  };
  const alive = isLive(run.status);
  return (
    <>
      {alive && told ? <span role="status">Stopping: until its last process is gone</span> : null}
      {alive ? (
        <Button icon={<SquareX size={14} />} disabled={told} onClick={() => setVerb("cancel")}>
          Cancel
        </Button>
      ) : (
        <Button kind="primary" icon={<RotateCcw size={14} />} onClick={() => setVerb("replay")}>
          Replay
        </Button>
      )}
      {verb === "cancel" ? (
        <Confirm title={`Cancel this run of ${run.name}?`} verb="Cancel the run" danger act={cancel} onClose={() => setVerb(null)}>
          <p>{run.status === "RUNNING" ? "Its worker stops all processes of the run." : "It ends at once and never starts."} The job stays.</p>
        </Confirm>
      ) : null}
      {verb === "replay" ? <Replay run={run} onClose={() => setVerb(null)} /> : null}
    </>
  );
}

export function Replay({ run, onClose }: { run: Pick<RunView, "run_id" | "name" | "task" | "payload">; onClose: () => void }) {
  const schema = useSchema(run.task);
  const own = run.payload === null || run.payload === undefined ? "" : JSON.stringify(run.payload, null, 2);
  const [text, setText] = useState(own);
  const navigate = useNavigate();
  const client = useQueryClient();
  const act = async (): Promise<void> => {
    const value = parsed(text);
    if (value === null) throw new Error("The payload is no valid JSON.");
    const made = await post<RunView>(`${runPath(run.run_id)}:retry`, text === own ? {} : { payload: value.value ?? null });
    await client.invalidateQueries({ queryKey: ["list"] });
    say("It runs again, as a new run.");
    await navigate({ to: "/runs/$run", params: { run: made.run_id } });
  };
  return (
    <Confirm title={`Replay this run of ${run.name}?`} verb="Replay" act={act} onClose={onClose}>
      <p>A new run for the same fire time. Change the payload if the old one was the fault.</p>
      <PayloadEditor schema={schema} text={text} onChange={setText} />
    </Confirm>
  );
}
