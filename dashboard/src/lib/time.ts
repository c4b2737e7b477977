// Times as text, always with their zone.
import type { Zone } from "./preferences";

const cache = new Map<string, Intl.DateTimeFormat>();

export const LOCAL_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

function formatter(zone: string, options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  const key = zone + JSON.stringify(options);
  let found = cache.get(key);
  if (found === undefined) {
    found = new Intl.DateTimeFormat("en-GB", { ...options, timeZone: zone, hourCycle: "h23" });
    cache.set(key, found);
  }
  return found;
}

/** Whether this browser knows it. */
export function isZone(name: string): boolean {
  try {
    new Intl.DateTimeFormat("en-GB", { timeZone: name });
    return name !== "";
  } catch {
    return false;
  }
}

/** The IANA zone that a choice means. A page without a job, or a job without a zone, shows UTC for "job". */
export function zoneOf(choice: Zone, jobZone?: string | null): string {
  if (choice === "local") return LOCAL_ZONE;
  if (choice === "job") return jobZone ?? "UTC";
  return choice !== "utc" && isZone(choice) ? choice : "UTC";
}

function parts(at: number, zone: string): Record<string, string> {
  const format = formatter(zone, {
    year: "numeric", month: "short", day: "numeric", weekday: "short", hour: "2-digit", minute: "2-digit",
    second: "2-digit", timeZoneName: "longOffset",
  });
  return Object.fromEntries(format.formatToParts(at).map((part) => [part.type, part.value]));
}

/** +02:00, or UTC. */
export function offset(at: number, zone: string): string {
  if (zone === "UTC") return "UTC";
  const name = parts(at, zone)["timeZoneName"] ?? "";
  return name === "GMT" ? "+00:00" : name.replace("GMT", "");
}

export function clockTime(at: number, zone: string): string {
  const p = parts(at, zone);
  return `${p["hour"]}:${p["minute"]}:${p["second"]}`;
}

/** Mon 16 Nov 09:00:00; with the year where it is another one. */
export function dayAndTime(at: number, zone: string, now = Date.now()): string {
  const p = parts(at, zone);
  const year = p["year"] === parts(now, zone)["year"] ? "" : ` ${p["year"]}`;
  return `${p["weekday"]} ${p["day"]} ${p["month"]}${year} ${p["hour"]}:${p["minute"]}:${p["second"]}`;
}

export function day(at: number, zone: string): string {
  const p = parts(at, zone);
  return `${p["weekday"]} ${p["day"]} ${p["month"]}`;
}

export function absolute(at: number, zone: string): string {
  return `${dayAndTime(at, zone)} ${offset(at, zone)}`;
}

/** in 5 s, 3 min ago. Only below a day. */
export function relative(at: number, now: number): string {
  const seconds = Math.round(Math.abs(at - now) / 1000);
  const words =
    seconds < 60 ? `${seconds} s`
    : seconds < 3600 ? `${Math.floor(seconds / 60)} min`
    : `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  if (seconds === 0) return "now";
  return at > now ? `in ${words}` : `${words} ago`;
}

/** A time as the server and addresses write it, to the second. */
export function inAddress(moment: Date): string {
  return moment.toISOString().replace(/\.\d+Z$/, "Z");
}
