// What is typed in the form as a command of the shell. Names of others may be in it, so every word is quoted.
import type { JobView } from "../../api/schema";
import { callOf } from "../../lib/call";
import { parsed } from "../../ui/PayloadEditor";
import { type Draft, listed } from "./draft";
import { word } from "../../lib/shellWord";

/** The same job as a command. `base`: the job that the draft began with. */
export function commandOf(draft: Draft, base?: JobView): string {
  return ["mainspring submit", ...whatOf(draft, base), ...whenOf(draft), ...howOf(draft)].join(" ");
}

function option(name: string, value: string | null | undefined): string[] {
  return value?.trim() ? [`--${name} ${word(value.trim())}`] : [];
}

function whatOf(draft: Draft, base?: JobView): string[] {
  if (draft.what === "shell") return option("command", draft.command);
  if (draft.what === "http") {
    const { headers = {}, body } = base?.http ?? {};
    return [
      ...option("http", draft.url), ...option("method", draft.method),
      ...Object.entries(headers).flatMap(([name, value]) => option("header", `${name}: ${typeof value === "string" ? value : `@secret:${value.$secret}`}`)),
      ...option("body", body === undefined ? "" : typeof body === "string" ? body : JSON.stringify(body)),
    ];
  }
  const call = base?.task === draft.task.trim() ? callOf(base) : null;
  const payload = parsed(draft.payload)?.value ?? call ?? undefined;  // the call of a kind may be given as its payload
  return [word(draft.task.trim()), ...option("payload", payload === undefined ? "" : JSON.stringify(payload))];
}

function whenOf(draft: Draft): string[] {
  const zone = option("timezone", draft.timezone);
  const bounds = [
    ...option("jitter", draft.jitter), ...option("start", draft.start), ...option("end", draft.end),
    ...option("max-runs", draft.maxRuns), ...option("calendar", draft.calendar),
    ...(draft.calendar ? option("outside", draft.outside) : []),
  ];
  const clocks = [...option("dst-gap", draft.gap), ...option("dst-overlap", draft.overlapping)];
  switch (draft.when) {
    case "now":
      return [];
    case "manual":
      return ["--manual"];
    case "at":
      return [...option("at", draft.at), ...zone];
    case "after":
      return listed(draft.after).flatMap((job) => option("after", job));
    case "event":
      return []; // submit has no such option: AsText shows JSON alone
    case "every":
      return [...option("every", draft.every), ...bounds];
    case "cron":
      return [...option("cron", draft.cron), ...zone, ...clocks, ...bounds];
    case "rrule":
      return [
        ...option("rrule", draft.rrule), ...zone, ...listed(draft.exdates).flatMap((time) => option("exdate", time)),
        ...clocks, ...bounds,
      ];
  }
}

function howOf(draft: Draft): string[] {
  const attempts = Number(draft.attempts);
  return [
    ...option("job-id", draft.jobId), ...option("name", draft.name), ...option("queue", draft.queue),
    ...option("priority", draft.priority), ...option("timeout", draft.timeout),
    ...option("retries", draft.attempts.trim() === "" || Number.isNaN(attempts) ? "" : String(attempts - 1)),
    ...option("overlap", draft.overlap), ...option("misfire", draft.misfire), ...option("owner", draft.owner),
    ...option("description", draft.description), ...listed(draft.labels).flatMap((label) => option("label", label)),
  ];
}
