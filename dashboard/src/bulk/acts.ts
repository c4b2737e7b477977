// One verb on many: what there is, how many match, and the operation that carries it out.
import { call, get, post } from "../api/client";
import type { Counted, OperationView } from "../api/schema";
import { counted, plural } from "../lib/format";

export type Target = "jobs" | "runs" | "dead-letters";

export interface Verb {
  /** As the server calls it. */
  name: string;
  /** As a person reads it: "Pause". */
  label: string;
  /** What happens to them. */
  effect: string;
  danger?: boolean;
}

export type Chosen = { ids: string[]; names: string[] } | { filter: Filter };

/** The parameters of the list, as the page has them. */
export type Filter = Record<string, string | undefined>;

export const NOUNS: Record<Target, string> = { jobs: "job", runs: "run", "dead-letters": "dead letter" };

export const VERBS: Record<Target, Verb[]> = {
  jobs: [
    { name: "pause", label: "Pause", effect: "They do not fire until they are resumed. Runs that have started go on." },
    { name: "resume", label: "Resume", effect: "They fire again by their schedules, from now on." },
    { name: "run_now", label: "Run now", effect: "Each runs once now, beside its schedule." },
    { name: "cancel", label: "Cancel", effect: "They fire no more, and their live runs are stopped.", danger: true },
  ],
  runs: [
    { name: "retry", label: "Run again", effect: "Those that have ended run again, each as a new run for the same fire time, with its own payload." },
    { name: "cancel", label: "Cancel", effect: "Those that wait end at once, and workers stop those that run. Ended runs stay as they are.", danger: true },
  ],
  "dead-letters": [
    { name: "replay", label: "Replay", effect: "Each becomes a new run for the same fire time, with its own payload." },
    { name: "discard", label: "Discard", effect: "Their payloads are deleted. The runs stay in the history as failed.", danger: true },
  ],
};

const LISTS = ["status", "latest_run", "schedule_type", "health"];

function filterBody(filter: Filter): Record<string, string | string[] | Record<string, string>> {
  const found: Record<string, string | string[] | Record<string, string>> = {};
  for (const [name, value] of Object.entries(filter)) {
    if (value === undefined || value === "") continue;
    if (name.startsWith("payload.")) found.payload = { [name.slice("payload.".length)]: value };
    else found[name] = LISTS.includes(name) ? value.split(",") : value;
  }
  return found;
}

export async function countMatching(target: Target, verb: string, filter: Filter, signal?: AbortSignal): Promise<Counted> {
  const body = { verb, filter: filterBody(filter), dry_run: true };
  return (await call<Counted>("POST", `/v1/${target}:act`, { body, signal })).data;
}

export function begin(target: Target, verb: string, chosen: Chosen, expected: number): Promise<OperationView> {
  return post<OperationView>(`/v1/${target}:act`, bodyOf(verb, chosen, expected));
}

/** What is asked of the server. */
export function bodyOf(verb: string, chosen: Chosen, expected: number): object {
  return { verb, ...("ids" in chosen ? { ids: chosen.ids } : { filter: filterBody(chosen.filter) }), expected };
}

export const PROGRESS_WORDS: Record<string, string> = { RUNNING: "At work", DONE: "Done", CANCELLED: "Stopped", FAILED: "Ended early" };

type Named = Pick<OperationView, "target" | "verb" | "count" | "exact">;

/** jobs, runs or dead letters. */
export function shownTarget(operation: Pick<OperationView, "target">): string {
  return `${NOUNS[targetOf(operation)]}s`;
}

/** Pause 120 jobs. */
export function operationWords(operation: Named): string {
  const target = targetOf(operation);
  const label = VERBS[target].find((verb) => verb.name === operation.verb)?.label ?? operation.verb;
  const noun = NOUNS[target];
  return `${label} ${operation.exact ? plural(operation.count, noun) : `${counted(operation.count, true)} ${noun}s`}`;
}

/** A filter as it was sent, in words. */
export function filterWords(filter: Record<string, unknown>): string {
  const given = Object.entries(filter).filter(([, value]) => value !== null && value !== "" && !(Array.isArray(value) && value.length === 0));
  return given.map(([name, value]) => `${name.replace("_", " ")} ${Array.isArray(value) ? value.join(", ") : String(value)}`).join(" · ") || "all";
}

function targetOf(operation: Pick<OperationView, "target">): Target {
  return operation.target.replace("_", "-") as Target;
}

export const operationPath = (id: string): string => `/v1/operations/${encodeURIComponent(id)}`;

export function readOperation(id: string, signal?: AbortSignal): Promise<OperationView> {
  return get<OperationView>(operationPath(id), {}, signal);
}
