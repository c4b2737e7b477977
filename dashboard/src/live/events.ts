// Server-sent events of an answer. Comments are beats, which EventSource would not show; it hides refusals as well.
export interface ServerEvent {
  name: string;
  data: unknown;
}

/** The events as they arrive, and null for a comment. */
export async function* eventsOf(response: Response): AsyncGenerator<ServerEvent | null> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (reader === undefined) return;
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    const messages = rest.split("\n\n");
    rest = messages.pop() ?? "";
    for (const message of messages) yield parsed(message);
  }
}

function parsed(message: string): ServerEvent | null {
  let name = "";
  let data = "";
  for (const line of message.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data = line.slice(6);
  }
  return data === "" ? null : { name, data: JSON.parse(data) as unknown };
}
