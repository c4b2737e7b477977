// When the server was last heard, and how the page learns of changes. Every answer and every beat of the stream counts;
// without a stream the shell asks every five seconds.
import { useSyncExternalStore } from "react";

const STALE_MS = 15_000;

/** live: the stream tells what has changed. polling: the page asks. */
export type Link = "live" | "polling";

interface Standing {
  heardAt: number;
  stale: boolean;
  link: Link;
}

let standing: Standing = { heardAt: Date.now(), stale: false, link: "polling" };
let failing = false;
const listeners = new Set<() => void>();

export function heard(): void {
  failing = false;
  const now = Date.now();
  if (standing.stale || now - standing.heardAt > 1000) publish({ ...standing, heardAt: now, stale: false });
}

export function unheard(): void {
  failing = true;
  look();
}

/** The page is stale when the server has been silent for 15 s although it was asked. */
export function look(): void {
  if (failing && !standing.stale && Date.now() - standing.heardAt >= STALE_MS)
    publish({ ...standing, stale: true });
}

export function link(): Link {
  return standing.link;
}

export function setLink(next: Link): void {
  if (next !== standing.link) publish({ ...standing, link: next });
}

function publish(next: Standing): void {
  standing = next;
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useBeat(): Standing {
  return useSyncExternalStore(subscribe, () => standing);
}
