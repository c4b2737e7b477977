// Follows the output of a run by server-sent events, read with fetch so that the page sees refusals.
import { send } from "../../api/client";
import { runPath } from "../../api/queries";

export interface LogEvents {
  output: (attempt: number, text: string) => void;
  attempt: (attempt: number) => void;
  end: () => void;
}

export async function followLog(run: string, attempt: number, events: LogEvents, signal: AbortSignal): Promise<void> {
  const query = { follow: true, attempt: attempt > 0 ? attempt : undefined };
  const response = await send("GET", `${runPath(run)}/logs`, { query, signal });
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (reader === undefined) return;
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    const messages = rest.split("\n\n");
    rest = messages.pop() ?? "";
    for (const message of messages) if (deliver(message, events)) return;
  }
}

function deliver(message: string, events: LogEvents): boolean {
  let name = "";
  let data = "";
  for (const line of message.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data = line.slice(6);
  }
  if (data === "") return false;
  const body = JSON.parse(data) as { attempt?: number; text?: string };
  if (name === "output" || name === "truncated") events.output(body.attempt ?? 0, body.text ?? "");
  else if (name === "attempt") events.attempt(body.attempt ?? 0);
  else if (name === "end") events.end();
  return name === "end";
}
