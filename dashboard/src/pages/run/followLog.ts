// Follows the output of a run by server-sent events, read with fetch so that the page sees refusals.
import { send } from "../../api/client";
import { runPath } from "../../api/queries";

export interface LogEvents {
  /** `end`: the byte of the attempt's output at which the text ends. */
  output: (attempt: number, text: string, end: number) => void;
  truncated: () => void;
  attempt: (attempt: number) => void;
  end: () => void;
}

/** `after`: attempt and byte, such as "1:2048", after which it begins. Returns at the end of the run, or of the stream. */
export async function followLog(
  run: string, attempt: number, after: string | null, events: LogEvents, signal: AbortSignal,
): Promise<void> {
  const query = { follow: true, attempt: attempt > 0 ? attempt : undefined };
  const headers: Record<string, string> = after === null ? {} : { "Last-Event-ID": after };
  const response = await send("GET", `${runPath(run)}/logs`, { query, signal, headers });
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (reader === undefined) return;
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done || signal.aborted) return;
    rest += value;
    const messages = rest.split("\n\n");
    rest = messages.pop() ?? "";
    for (const message of messages) if (deliver(message, events)) return;
  }
}

function deliver(message: string, events: LogEvents): boolean {
  const fields = new Map<string, string>();
  for (const line of message.split("\n")) {
    const colon = line.indexOf(": ");
    if (colon > 0) fields.set(line.slice(0, colon), line.slice(colon + 2));
  }
  const data = fields.get("data");
  if (data === undefined) return false;
  const name = fields.get("event");
  const body = JSON.parse(data) as { attempt?: number; text?: string };
  const byte = Number(fields.get("id")?.split(":")[1] ?? 0);
  if (name === "output") events.output(body.attempt ?? 0, body.text ?? "", byte);
  else if (name === "truncated") events.truncated();
  else if (name === "attempt") events.attempt(body.attempt ?? 0);
  else if (name === "end") events.end();
  return name === "end";
}
