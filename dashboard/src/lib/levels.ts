// The level of a line of output: of JSON lines, and of what common loggers write.
export type Level = "error" | "warning";

const JSON_LEVEL = /^\{.*"(?:level|severity|levelname|lvl)"\s*:\s*"?(\w+)/i;
const WORD = /(?:^|[\s[(|:=])(ERROR|CRITICAL|FATAL|PANIC|WARNING|WARN)(?=$|[\s\])|:])/;
const NAMED = /^(?:Traceback \(most recent call last\)|[\w.]*(?:Error|Exception)(?::|$))/;

export function levelOf(text: string): Level | null {
  const word = (text.match(JSON_LEVEL)?.[1] ?? text.match(WORD)?.[1] ?? "").toUpperCase();
  if (["ERROR", "CRITICAL", "FATAL", "PANIC", "50", "60"].includes(word) || NAMED.test(text)) return "error";
  return ["WARNING", "WARN", "40"].includes(word) ? "warning" : null;
}
