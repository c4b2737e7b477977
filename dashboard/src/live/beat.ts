// When the server was last heard. Every answer counts; without requests the shell asks every five seconds.
import { useSyncExternalStore } from "react";

const STALE_MS = 15_000;

interface Standing {
  heardAt: number;
  stale: boolean;
}

let standing: Standing = { heardAt: Date.now(), stale: false };
let failing = false;
const listeners = new Set<() => void>();

export function heard(): void {
  failing = false;
  const now = Date.now();
  if (standing.stale || now - standing.heardAt > 1000) publish({ heardAt: now, stale: false });
}

export function unheard(): void {
  failing = true;
  look();
}

/** The page is stale when the server has been silent for 15 s although it was asked. */
export function look(): void {
  if (failing && !standing.stale && Date.now() - standing.heardAt >= STALE_MS)
    publish({ heardAt: standing.heardAt, stale: true });
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
