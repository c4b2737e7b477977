// What is typed in the form, and the request that it means.
import type { JobView } from "../../api/schema";
import { parsed } from "../../ui/PayloadEditor";
import { callOf } from "../../lib/call";
import { word } from "../../lib/shellWord";

export type What = "task" | "shell" | "http";
export type When = "now" | "at" | "every" | "cron" | "rrule" | "after" | "event" | "manual";

export interface Draft {
  jobId: string;
  name: string;
  what: What;
  task: string;
  payload: string;
  command: string;
  url: string;
  method: string;
  when: When;
  cron: string;
  every: string;
  at: string;
  rrule: string;
  after: string;
  event: string;
  condition: string;
  /** Which events share a run, in words: a part of the schedule that the form does not change. */
  together: string;
  timezone: string;
  calendar: string;
  outside: string;
  jitter: string;
  gap: string;
  overlapping: string;
  start: string;
  end: string;
  maxRuns: string;
  exdates: string;
  queue: string;
  priority: string;
  timeout: string;
  attempts: string;
  overlap: string;
  misfire: string;
  owner: string;
  description: string;
  labels: string;
}

export const EMPTY: Draft = {
  jobId: "", name: "", what: "shell", task: "", payload: "", command: "", url: "", method: "GET", when: "cron",
  cron: "", every: "", at: "", rrule: "", after: "", event: "", condition: "", together: "", timezone: "", calendar: "", outside: "", jitter: "", gap: "",
  overlapping: "", start: "", end: "", maxRuns: "", exdates: "", queue: "", priority: "", timeout: "", attempts: "", overlap: "", misfire: "", owner: "", description: "", labels: "",
};

const WHENS: Record<string, When> = { CRON: "cron", INTERVAL: "every", FUTURE: "at", RRULE: "rrule", AFTER: "after", EVENT: "event", MANUAL: "manual" };

export function draftOf(job: JobView, copy: boolean): Draft {
  return {
    ...EMPTY,
    jobId: copy ? "" : job.job_id,
    name: job.name === job.job_id ? "" : job.name,
    what: job.command !== null ? "shell" : job.http !== null ? "http" : "task",
    task: job.task,
    payload: job.payload === null || job.payload === undefined ? "" : JSON.stringify(job.payload, null, 2),
    command: typeof job.command === "string" ? job.command : (job.command ?? []).map(word).join(" "),
    url: job.http?.url ?? "",
    method: job.http?.method || (job.http?.body === undefined ? "GET" : "POST"),
    when: WHENS[job.schedule_type] ?? "now",
    cron: job.cron_expression ?? "",
    every: job.every === null ? "" : `${job.every}s`,
    at: job.schedule_time ?? "",
    rrule: job.rrule ?? "",
    after: job.after.join(", "),
    ...eventOf(job),
    timezone: job.timezone ?? "",
    calendar: job.calendar ?? "",
    outside: job.outside ?? "",
    jitter: job.jitter === null ? "" : `${job.jitter}s`,
    gap: job.dst?.gap ?? "",
    overlapping: job.dst?.overlap ?? "",
    start: job.start ?? "",
    end: job.end ?? "",
    maxRuns: job.max_runs === null ? "" : String(job.max_runs),
    exdates: job.exdates.join(", "),
    queue: job.queue,
    priority: job.priority,
    timeout: `${job.timeout}s`,
    attempts: String(job.retry.max_attempts),
    overlap: job.overlap,
    misfire: job.misfire.policy,
    owner: job.owner ?? "",
    description: job.description ?? "",
    labels: Object.entries(job.labels).map(([key, value]) => `${key}=${value}`).join(", "),
  };
}

/** The event and its condition, from the schedule as text: "on NAME if CONDITION". */
function eventOf(job: JobView): Pick<Draft, "event" | "condition" | "together"> {
  if (job.schedule_type !== "EVENT") return { event: "", condition: "", together: "" };
  const [event = "", ...parts] = job.schedule.replace(/^on /, "").split(" if ");
  const condition = parts.join(" if ");
  const words = `When ${event} is emitted${condition ? `, if ${condition}` : ""}`;
  return { event, condition, together: job.schedule_in_words.slice(words.length).replace(/^, /, "") };
}

const text = (value: string): string | undefined => value.trim() || undefined;
export const listed = (value: string): string[] => value.split(",").map((one) => one.trim()).filter(Boolean);

/** The schedule of the draft as a request has it; null while it is not complete. */
export function scheduleOf(draft: Draft): unknown {
  const timezone = text(draft.timezone);
  switch (draft.when) {
    case "now":
      return undefined;
    case "manual":
      return "manual";
    case "cron":
      return text(draft.cron) && { cron: text(draft.cron), timezone, dst: clocksOf(draft), ...boundsOf(draft) } || null;
    case "every":
      return text(draft.every) && { every: text(draft.every), ...boundsOf(draft) } || null;
    case "rrule": {
      const exdates = listed(draft.exdates);
      const more = { dst: clocksOf(draft), exdates: exdates.length === 0 ? undefined : exdates };
      return text(draft.rrule) && { rrule: text(draft.rrule), timezone, ...more, ...boundsOf(draft) } || null;
    }
    case "at":
      return text(draft.at) && { at: text(draft.at), timezone } || null;
    case "after":
      return text(draft.after) && { after: listed(draft.after) } || null;
    case "event":
      return text(draft.event) && { event: text(draft.event), if: text(draft.condition) } || null;
  }
}

/** What every schedule that recurs may have. */
function boundsOf(draft: Draft): Record<string, unknown> {
  const runs = text(draft.maxRuns);
  const count = Number(runs);
  return {
    calendar: text(draft.calendar), outside: text(draft.calendar) && text(draft.outside), jitter: text(draft.jitter),
    start: text(draft.start), end: text(draft.end), max_runs: runs === undefined || Number.isNaN(count) ? runs : count,
  };
}

function clocksOf(draft: Draft): Record<string, unknown> | undefined {
  const policy = { gap: text(draft.gap), overlap: text(draft.overlapping) };
  return policy.gap || policy.overlap ? policy : undefined;
}

/** What a job has that the form does not show: a copy has it too. */
const KEPT = [
  "retry", "misfire", "delivery", "env", "limits", "sandbox", "run_as", "required_labels", "concurrency", "rate_limit",
  "circuit_breaker", "kill_grace", "run_timeout", "expires_in", "max_losses", "keep_payload", "depends_on", "rule",
  "on_upstream_failure", "late_after", "expected_duration", "deadline", "on_deadline", "keep_logs",
] as const satisfies readonly (keyof JobView)[];

/** The request for a new job that begins as a copy. */
export function copyOf(base: JobView, draft: Draft): Record<string, unknown> {
  const kept = Object.fromEntries(KEPT.map((name) => [name, base[name]]).filter(([, value]) => !isEmpty(value)));
  const typed = requestOf(draft, base);
  const merged = (["retry", "misfire"] as const).map((name) => [name, { ...base[name], ...(typed[name] ?? {}) }]);
  return { ...kept, ...typed, ...Object.fromEntries(merged) };
}

function isEmpty(value: unknown): boolean {
  return value === null || value === undefined || (typeof value === "object" && Object.keys(value).length === 0);
}

/** `base`: the job that the draft began with. Of its call the form shows only a part. */
export function requestOf(draft: Draft, base?: JobView): Record<string, unknown> {
  const payload = parsed(draft.payload);
  const call = draft.what === "task" && base?.task === draft.task.trim() && payload?.value === undefined ? callOf(base) : null;
  const labels = draft.labels.split(",").map((pair) => pair.split("=")).filter(([key]) => key?.trim());
  const whole: Record<string, unknown> = {
    job_id: text(draft.jobId),
    name: text(draft.name),
    task: draft.what === "task" ? draft.task.trim() : undefined,
    command: draft.what === "shell" ? draft.command : undefined,
    http: draft.what === "http" ? { ...base?.http, url: draft.url.trim(), method: draft.method } : undefined,
    payload: draft.what === "task" ? payload?.value : undefined,
    ...(call === null ? {} : { [draft.task.trim()]: call }),
    schedule: scheduleOf(draft) ?? undefined,
    queue: text(draft.queue),
    priority: text(draft.priority),
    timeout: text(draft.timeout),
    retry: draft.attempts.trim() === "" ? undefined : { max_attempts: Number(draft.attempts) },
    overlap: text(draft.overlap),
    misfire: draft.misfire === "" ? undefined : { policy: draft.misfire },
    owner: text(draft.owner),
    description: text(draft.description),
    labels: labels.length === 0 ? undefined : Object.fromEntries(labels.map(([key, ...value]) => [key?.trim() ?? "", value.join("=").trim()])),
  };
  return Object.fromEntries(Object.entries(whole).filter(([, value]) => value !== undefined));
}

/** Only what was changed; what was removed becomes null, which means the default. */
export function changesOf(base: JobView, before: Draft, after: Draft): Record<string, unknown> {
  const old = requestOf(before, base);
  const next = requestOf(after, base);
  delete old["job_id"];
  delete next["job_id"];
  const changes: Record<string, unknown> = {};
  for (const name of new Set([...Object.keys(old), ...Object.keys(next)]))
    if (JSON.stringify(old[name]) !== JSON.stringify(next[name])) changes[name] = next[name] ?? null;
  return changes;
}

/** Changes some fields of the draft. */
export type Set = (change: Partial<Draft>) => void;
