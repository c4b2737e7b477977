// What is typed and not yet accepted stays in this tab: only what differs from the job, and the version it was typed for.
// If the job is another one by then, the server finds out by that version, and the form shows the conflict.
import { type Draft, EMPTY } from "./draft";

const PREFIX = "mainspring.draft.";

export interface Kept {
  typed: Partial<Draft>;
  version: number | null;
}

/** The fields that differ from what the form began with. */
export function typedOver(before: Draft, draft: Draft): Partial<Draft> {
  const names = Object.keys(EMPTY) as (keyof Draft)[];
  return Object.fromEntries(names.filter((name) => draft[name] !== before[name]).map((name) => [name, draft[name]]));
}

export function keep(key: string, kept: Kept): void {
  if (Object.keys(kept.typed).length === 0) forget(key);
  else sessionStorage.setItem(PREFIX + key, JSON.stringify(kept));
}

export function forget(key: string): void {
  sessionStorage.removeItem(PREFIX + key);
}

export function restored(key: string): Kept | null {
  try {
    const { typed, version } = JSON.parse(sessionStorage.getItem(PREFIX + key) ?? "null") as Kept;
    return typeof typed === "object" ? { typed, version } : null;
  } catch {
    return null;
  }
}
