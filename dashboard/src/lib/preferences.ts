// What a person has chosen for this browser.
import { useSyncExternalStore } from "react";

export type Theme = "system" | "light" | "dark";
/** Or the IANA name of a zone. */
export type Zone = "utc" | "local" | "job" | (string & {});

export interface Preferences {
  theme: Theme;
  zone: Zone;
  /** The zone that the person has named, which stays among the choices; empty: none. */
  ownZone: string;
  /** The first steps are shown on the overview: this browser has met an empty installation. */
  guide: boolean;
  keys: boolean;
  compact: boolean;
  /** Long lines of a log are wrapped. */
  wrap: boolean;
  /** The times that lines of a log say. */
  lineTimes: "none" | "clock" | "since";
}

const KEY = "mainspring.preferences";
const DEFAULTS: Preferences = { theme: "system", zone: "utc", ownZone: "", guide: false, keys: true, compact: false, wrap: false, lineTimes: "none" };
const listeners = new Set<() => void>();
const dark = window.matchMedia("(prefers-color-scheme: dark)");
let current = load();

function load(): Preferences {
  try {
    return { ...DEFAULTS, ...(JSON.parse(localStorage.getItem(KEY) ?? "{}") as Partial<Preferences>) };
  } catch {
    return DEFAULTS;
  }
}

export function preferences(): Preferences {
  return current;
}

export function prefer(change: Partial<Preferences>): void {
  current = { ...current, ...change };
  try {
    localStorage.setItem(KEY, JSON.stringify(current));
  } catch {
    // The browser keeps nothing: the choice lasts until the page is closed.
  }
  applyTheme();
  for (const listener of listeners) listener();
}

export function usePreferences(): Preferences {
  return useSyncExternalStore(subscribe, preferences);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function isDark(): boolean {
  return current.theme === "dark" || (current.theme === "system" && dark.matches);
}

export function applyTheme(): void {
  document.documentElement.dataset["theme"] = isDark() ? "dark" : "light";
  document.documentElement.dataset["density"] = current.compact ? "compact" : "normal";
}

dark.addEventListener("change", () => {
  applyTheme();
  for (const listener of listeners) listener();
});
