import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { RotateCcw, SquareX } from "lucide-react";
import { useState } from "react";
import { change, type Seen } from "../../api/client";
import { isLive, runPath, useSchema } from "../../api/queries";
import type { RunView } from "../../api/schema";
import type { Same } from "../../ui/AsCommand";
import { Button } from "../../ui/Button";
import { Confirm } from "../../ui/Dialog";
import { parsed, PayloadEditor } from "../../ui/PayloadEditor";
import { say } from "../../ui/Toasts";

type Verb = "cancel" | "replay";

export function RunActions({ run }: { run: RunView }) {
  const [verb, setVerb] = useState<Verb | null>(null);
  // The run as it was shown when the dialog opened: what came since then has not been seen.
  const [seen, setSeen] = useState(run.etag);
  const ask = (asked: Verb): void => {
    setSeen(run.etag);
    setVerb(asked);
  };
  const [told, setTold] = useState(false);
  const client = useQueryClient();
  const renew = (): void => void client.invalidateQueries({ queryKey: ["run", run.run_id] });
  const cancel = async (): Promise<void> => {
    await change("POST", `${runPath(run.run_id)}:cancel`, seen, {});
    setTold(true);
    renew();
  };
  const alive = isLive(run.status);
  return (
    <>
      {alive && told ? <span role="status">Stopping: until its last process is gone</span> : null}
      {alive ? (
        <Button needs="runs.cancel" creator={run.created_by?.id ?? null} icon={<SquareX size={14} />} disabled={told} onClick={() => ask("cancel")}>
          Cancel
        </Button>
      ) : (
        <Button kind="primary" needs="runs.retry" icon={<RotateCcw size={14} />} onClick={() => ask("replay")}>
          Replay
        </Button>
      )}
      {verb === "cancel" ? (
        <Confirm title={`Cancel this run of ${run.name}?`} verb="Cancel the run" danger act={cancel} onClose={() => setVerb(null)} onConflict={renew} creator={run.created_by?.id ?? null} same={{ command: ["run", "cancel", run.run_id], method: "POST", path: `${runPath(run.run_id)}:cancel`, python: ["cancel_run", run.run_id] }}>
          <p>{run.status === "RUNNING" ? "Its worker stops all processes of the run." : "It ends at once and never starts."} The job stays.</p>
        </Confirm>
      ) : null}
      {verb === "replay" ? <Replay run={run} path={`${runPath(run.run_id)}:retry`} seen={seen} id={run.run_id} onClose={() => setVerb(null)} onConflict={renew} /> : null}
    </>
  );
}

interface ReplayProps {
  run: Pick<RunView, "name" | "task" | "payload">;
  /** The verb: of the run, or of its dead letter. */
  path: string;
  id: string;
  /** It is a dead letter. */
  dead?: boolean;
  seen: Seen;
  onClose: () => void;
  onConflict: () => void;
}

export function Replay({ run, path, id, dead = false, seen, onClose, onConflict }: ReplayProps) {
  const schema = useSchema(run.task);
  const own = run.payload === null || run.payload === undefined ? "" : JSON.stringify(run.payload, null, 2);
  const [text, setText] = useState(own);
  const navigate = useNavigate();
  const client = useQueryClient();
  const act = async (): Promise<void> => {
    const value = parsed(text);
    if (value === null) throw new Error("The payload is no valid JSON.");
    const made = await change<RunView>("POST", path, seen, text === own ? {} : { payload: value.value ?? null });
    await client.invalidateQueries({ queryKey: ["list"] });
    say("It runs again, as a new run.");
    await navigate({ to: "/runs/$run", params: { run: made.run_id } });
  };
  const given = text === own ? undefined : (parsed(text)?.value ?? undefined);
  const payload = given === undefined ? [] : [given];
  const same: Same = {
    command: [...(dead ? ["dead-letter", "replay"] : ["run", "retry"]), id, ...payload.flatMap((one) => ["--payload", JSON.stringify(one)])], method: "POST", path,
    body: given === undefined ? {} : { payload: given }, python: [dead ? "replay" : "retry_run", id, ...payload],
  };
  return (
    <Confirm title={`Replay this run of ${run.name}?`} verb="Replay" operation={dead ? "dead_letters.replay" : "runs.retry"} act={act} onClose={onClose} onConflict={onConflict} same={same}>
      <p>A new run for the same fire time. Change the payload if the old one was the fault.</p>
      <PayloadEditor schema={schema} text={text} onChange={setText} />
    </Confirm>
  );
}
