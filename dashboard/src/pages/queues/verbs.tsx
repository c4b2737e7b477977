// What the list of queues and the page of a queue share: states, links to runs, pause, resume, limits.
import { useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { change } from "../../api/client";
import type { QueueView } from "../../api/schema";
import { count } from "../../lib/format";
import type { Same } from "../../ui/AsCommand";
import { Confirm } from "../../ui/Dialog";
import { Field } from "../../ui/Field";
import { say } from "../../ui/Toasts";

export type QueueVerb = { kind: "pause" | "resume" | "limits"; queue: QueueView };

/** A number of runs, as a link to them. Nothing to see is muted. */
export function RunsIn({ queue, status, number, unit }: { queue: QueueView; status: string; number: number; unit?: string }) {
  const words = unit ? <span className="onPhone"> {unit}</span> : null;
  if (number === 0) return <span className="muted">0{words}</span>;
  return (
    <Link to="/runs" search={{ queue: queue.name, status }}>
      {count(number)}
      {words}
    </Link>
  );
}

/** Runs that wait where nobody takes them are no green light. */
export function stateOf(queue: QueueView): string {
  return queue.paused ? "PAUSED" : queue.workers === 0 && queue.depth > 0 ? "NO_WORKER" : queue.workers === 0 ? "IDLE" : "LIVE";
}

function useRenew(): () => void {
  const client = useQueryClient();
  return () => void client.invalidateQueries({ queryKey: ["queues"] });
}

export function limitWords(queue: QueueView): string {
  const limits = queue.limits;
  const words = [
    limits?.concurrency ? `${limits.in_use ?? 0} of ${limits.concurrency} at once` : "",
    limits?.rate ? limits.rate : "",
    limits?.max_depth ? `≤ ${count(limits.max_depth)} waiting` : "",
  ].filter(Boolean);
  return words.length === 0 ? "none" : words.join(", ");
}

function PauseOrResume({ verb, onClose }: { verb: QueueVerb; onClose: () => void }) {
  const renew = useRenew();
  const { kind, queue } = verb;
  const [reason, setReason] = useState("");
  const act = async (): Promise<void> => {
    await change("POST", `/v1/queues/${encodeURIComponent(queue.name)}:${kind}`, queue.version, kind === "pause" && reason.trim() ? { reason } : {});
    say(`The queue ${queue.name} is ${kind === "pause" ? "paused" : "resumed"}.`);
    renew();
  };
  const why = kind === "pause" && reason.trim() ? reason.trim() : null;
  const same: Same = {
    command: ["queue", kind, queue.name, ...(why ? [`--reason=${why}`] : [])], method: "POST", path: `/v1/queues/${encodeURIComponent(queue.name)}:${kind}`,
    body: why ? { reason: why } : {}, python: [kind === "pause" ? "pause_queue" : "resume_queue", queue.name],
    named: why ? { reason: why } : {},
  };
  return kind === "pause" ? (
    <Confirm title={`Pause the queue ${queue.name}?`} verb="Pause the queue" act={act} same={same} onClose={onClose} onConflict={renew}>
      <p>No run of it starts from now on; {count(queue.depth)} wait. The {count(queue.running)} that run go on. Jobs can be submitted, and schedules fire.</p>
      <Field label="Reason" help="others see it where its runs wait" maxLength={1000} value={reason} onChange={(event) => setReason(event.target.value)} />
    </Confirm>
  ) : (
    <Confirm title={`Resume the queue ${queue.name}?`} verb="Resume the queue" act={act} same={same} onClose={onClose} onConflict={renew}>
      <p>Its {count(queue.depth)} waiting runs start as soon as workers are free.</p>
    </Confirm>
  );
}

function Limits({ queue, onClose }: { queue: QueueView; onClose: () => void }) {
  const renew = useRenew();
  const [concurrency, setConcurrency] = useState(String(queue.limits?.concurrency ?? ""));
  const [perTime, setPerTime] = useState(queue.limits?.rate ?? "");
  const [depth, setDepth] = useState(String(queue.limits?.max_depth ?? ""));
  const number = (text: string): number | null => (text.trim() === "" ? null : Number(text));
  const body = { concurrency: number(concurrency), rate: perTime.trim() || null, max_depth: number(depth) };
  const word = (value: number | string | null): string => String(value ?? "none");
  const same: Same = {
    command: ["queue", "set", queue.name, "--concurrency", word(body.concurrency), "--rate", word(body.rate), "--max-depth", word(body.max_depth)],
    method: "PUT", path: `/v1/queues/${encodeURIComponent(queue.name)}`, body, python: ["set_queue_limits", queue.name], named: body,
  };
  const act = async (): Promise<void> => {
    await change("PUT", `/v1/queues/${encodeURIComponent(queue.name)}`, queue.version, body);
    say(`The limits of ${queue.name} hold from now on.`);
    renew();
  };
  return (
    <Confirm title={`Limits of the queue ${queue.name}`} verb="Set the limits" act={act} onClose={onClose} onConflict={renew} same={same}>
      <p className="muted">They hold at once, also for runs that wait already. Empty means no limit.</p>
      <Field label="Runs at once" inputMode="numeric" value={concurrency} onChange={(event) => setConcurrency(event.target.value)} />
      <Field label="Starts" help="such as 100/m or 5/s" value={perTime} onChange={(event) => setPerTime(event.target.value)} />
      <Field label="Runs that may wait" inputMode="numeric" value={depth} onChange={(event) => setDepth(event.target.value)} />
    </Confirm>
  );
}

export function QueueDialog({ verb, onClose }: { verb: QueueVerb; onClose: () => void }) {
  return verb.kind === "limits" ? <Limits queue={verb.queue} onClose={onClose} /> : <PauseOrResume verb={verb} onClose={onClose} />;
}
