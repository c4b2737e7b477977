// Loads a part of the page, also where the server cannot be reached just now: then it is loaded as soon as it answers.
// A browser may remember that a part could not be loaded, or the part belongs to an older version. If the person has gone
// there already, the whole page is loaded again, but not twice within a minute.
import { reachable } from "../api/client";

const WAIT_MS = 2000;
const MINUTE_MS = 60_000;
const MOST_FAILURES = 3;
const RELOADED = "mainspring-reloaded";

export function patiently<T>(load: () => Promise<T>): () => Promise<T> {
  return async () => {
    const from = location.href;
    for (let failures = 1; ; failures++) {
      try {
        return await load();
      } catch (error) {
        if (!(await reachable())) failures = 0;
        else if (location.href !== from && mayReload()) return reload();
        else if (failures >= MOST_FAILURES) throw error;
        await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
      }
    }
  };
}

function mayReload(): boolean {
  return Date.now() - Number(sessionStorage.getItem(RELOADED)) > MINUTE_MS;
}

function reload(): Promise<never> {
  sessionStorage.setItem(RELOADED, String(Date.now()));
  location.reload();
  return new Promise<never>(() => undefined);
}
