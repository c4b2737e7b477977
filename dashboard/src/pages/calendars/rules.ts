// The rules of a calendar as text that one types, a line for each, as the command line has them.
import type { CalendarView } from "../../api/schema";

export const WEEKDAYS = ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"] as const;

export interface RulesDraft {
  timezone: string;
  weekdays: string[];
  holidays: string;
  dates: string;
  hours: string;
  blackouts: string;
  description: string;
}

export const NO_RULES: RulesDraft = { timezone: "", weekdays: [...WEEKDAYS], holidays: "", dates: "", hours: "", blackouts: "", description: "" };

interface Span {
  from?: string;
  to?: string;
}

export function draftOf(view: CalendarView): RulesDraft {
  return {
    timezone: view.timezone ?? "",
    weekdays: view.weekdays?.length ? [...view.weekdays] : [...WEEKDAYS],
    holidays: (view.holidays ?? []).map((one) => (one.subdivision ? `${one.country}-${one.subdivision}` : one.country)).join(", "),
    dates: (view.dates ?? []).map((one) => (typeof one === "string" ? one : `${one.from}..${one.to}`)).join("\n"),
    hours: hoursText(view.hours),
    blackouts: (view.blackouts ?? []).map((one) => (one.days ? `${one.days.join(",")} ${one.from}-${one.to}` : `${one.from}..${one.to}`)).join("\n"),
    description: view.description ?? "",
  };
}

function hoursText(hours: unknown): string {
  if (hours === null || hours === undefined) return "";
  if (Array.isArray(hours)) return hours.map(spanText).join("\n");
  const given = hours as Span & Record<string, Span | Span[] | undefined>;
  if (given.from) return spanText(given);
  return WEEKDAYS.filter((day) => given[day]).map((day) => `${day} ${[given[day] ?? []].flat().map(spanText).join(", ")}`).join("\n");
}

const spanText = (span: Span): string => `${span.from ?? ""}-${span.to ?? ""}`;

/** The body of PUT. What cannot be read is sent as it is: the server says what is wrong with it. */
export function rulesOf(draft: RulesDraft): Record<string, unknown> {
  const rules: Record<string, unknown> = {
    timezone: draft.timezone.trim() || undefined,
    weekdays: draft.weekdays.length === WEEKDAYS.length ? undefined : WEEKDAYS.filter((day) => draft.weekdays.includes(day)),
    holidays: listOf(draft.holidays, /[,\n]/).map((text) => {
      const [country = "", ...part] = text.split("-");
      return part.length > 0 ? { country, subdivision: part.join("-") } : { country };
    }),
    dates: listOf(draft.dates, /[,\n]/).map((text) => (text.includes("..") ? between(text, "..") : text)),
    hours: hoursOf(listOf(draft.hours, /\n/)),
    blackouts: listOf(draft.blackouts, /\n/).map(blackoutOf),
    description: draft.description.trim() || undefined,
  };
  return Object.fromEntries(Object.entries(rules).filter(([name, value]) => value !== undefined && (name === "weekdays" || !Array.isArray(value) || value.length > 0)));
}

function listOf(text: string, at: RegExp): string[] {
  return text.split(at).map((one) => one.trim()).filter((one) => one !== "");
}

function between(text: string, mark: string): { from: string; to: string } {
  const [from = "", ...to] = text.split(mark);
  return { from: from.trim(), to: to.join(mark).trim() };
}

function hoursOf(lines: string[]): unknown {
  if (lines.length === 0) return undefined;
  const byDay = lines.filter((line) => /^[A-Za-z]/.test(line));
  if (byDay.length === 0) return lines.flatMap((line) => listOf(line, /,/)).map((line) => between(line, "-"));
  return Object.fromEntries(byDay.map((line) => {
    const [day = "", ...spans] = line.split(/\s+/);
    return [day.toUpperCase(), listOf(spans.join(" "), /,/).map((span) => between(span, "-"))];
  }));
}

function blackoutOf(text: string): unknown {
  if (text.includes("..")) return between(text, "..");
  const at = text.lastIndexOf(" ");
  return at < 0 ? between(text, "-") : { ...between(text.slice(at + 1), "-"), days: daysOf(text.slice(0, at)) };
}

/** MON-FRI, or names with commas. */
function daysOf(text: string): string[] {
  return listOf(text.toUpperCase(), /,/).flatMap((part) => {
    const [first = "", last] = part.split("-");
    const begin = WEEKDAYS.indexOf(first as never);
    const end = WEEKDAYS.indexOf(last as never);
    return last !== undefined && begin >= 0 && end >= begin ? WEEKDAYS.slice(begin, end + 1) : [part];
  });
}
