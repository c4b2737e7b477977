// When: each kind of schedule, explained by the server while one types, with its next ten fires.
import { LOCAL_ZONE } from "../../lib/time";
import { Field, Select } from "../../ui/Field";
import { ProblemBox } from "../../ui/Problem";
import { Choice } from "../../ui/Tabs";
import type { Draft, Set, When } from "./draft";
import { Explanation } from "./Explanation";
import styles from "./JobForm.module.css";
import type { Problems } from "./problems";
import { useExplanation } from "./useExplanation";

const KINDS: [When, string][] = [
  ["now", "Now"], ["at", "At a time"], ["every", "Every"], ["cron", "Cron"], ["rrule", "RRULE"], ["after", "After jobs"], ["event", "On an event"], ["manual", "By hand"],
];
const WORDS: Partial<Record<When, string>> = {
  now: "It runs once, as soon as a worker is free.",
  manual: "It runs when somebody says so: here, by a command, or from code.",
};
const GAPS: [string, string][] = [["", "default"], ["shift", "runs right after"], ["skip", "does not run"]];
const OVERLAPS: [string, string][] = [["", "default"], ["first", "the first time"], ["last", "the second time"], ["both", "both times"]];
const OUTSIDE: [string, string][] = [["", "no fire"], ["next", "the next time that it allows"]];

type Text = (name: keyof Draft, field: string, label: string, more?: { placeholder?: string; help?: string; required?: boolean; list?: string }) => React.ReactNode;
type Choose = (name: keyof Draft, field: string, label: string, options: [string, string][]) => React.ReactNode;

export function SchedulePart({ draft, set, problems: refused }: { draft: Draft; set: Set; problems: Problems }) {
  const { shown, problems: found, failure } = useExplanation(draft);
  const problems = { ...refused, ...found };
  const at = (name: string): string | undefined =>
    problems[`schedule.${name}`] ?? problems[name] ?? problems[Object.keys(problems).find((path) => path.startsWith(`schedule.${name}[`)) ?? ""];
  const text: Text = (name, field, label, more = {}) => (
    <Field label={label} value={draft[name]} problem={at(field)} {...more} onChange={(event) => set({ [name]: event.target.value })} />
  );
  const choose: Choose = (name, field, label, options) => (
    <Select label={label} value={draft[name]} problem={at(field)} options={options} onChange={(event) => set({ [name]: event.target.value })} />
  );
  const words = WORDS[draft.when];
  const recurs = ["cron", "rrule", "every"].includes(draft.when);
  return (
    <div className={`${styles.part} ${words ? "" : styles.sided}`}>
     <div className={styles.part}>
      <Choice<When> label="Kind of schedule" value={draft.when} options={KINDS} onChange={(when) => set({ when })} />
      {words ? <p className="muted">{words}</p> : null}
      <div className={styles.grid}>
        {rule(draft.when, text)}
        {["cron", "rrule", "at"].includes(draft.when)
          ? text("timezone", "timezone", "Zone", { placeholder: "UTC", list: "zones", ...inZone(draft) })
          : null}
        {recurs ? text("calendar", "calendar", "Calendar", { help: "leave out the days that it excludes" }) : null}
        {recurs && draft.calendar.trim() ? choose("outside", "outside", "On excluded days", OUTSIDE) : null}
        {recurs ? text("jitter", "jitter", "Jitter", { help: "a delay of its own for each fire, up to this" }) : null}
      </div>
      {draft.when === "event" && draft.together ? (
        <p role="note">Also: {draft.together}. It stays while the event and the condition stay as they are. A copy does not have it.</p>
      ) : null}
      {recurs ? <More draft={draft} text={text} choose={choose} /> : null}
      {problems["schedule"] && !words ? <p role="alert">{problems["schedule"]}</p> : null}
      <datalist id="zones">
        {Intl.supportedValuesOf("timeZone").map((zone) => (
          <option key={zone} value={zone} />
        ))}
      </datalist>
     </div>
     {words ? null : (
       <div className={styles.side} role="group" aria-label="What the schedule means">
         {failure ? <ProblemBox error={failure} /> : shown ? <Explanation shown={shown} set={set} /> : <p className="muted">Its next fires appear here while you type.</p>}
       </div>
     )}
    </div>
  );
}

function rule(when: When, text: Text): React.ReactNode {
  switch (when) {
    case "cron":
      return text("cron", "cron", "Cron line", { required: true, placeholder: "0 9 * * MON-FRI" });
    case "every":
      return text("every", "every", "Every", { required: true, placeholder: "15m" });
    case "at":
      return text("at", "at", "At", { required: true, placeholder: "2030-12-31T23:59:00Z" });
    case "rrule":
      return text("rrule", "rrule", "RRULE", { required: true, placeholder: "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=18" });
    case "after":
      return text("after", "after", "After these jobs", { required: true, placeholder: "extract, load", help: "ids, with commas between them" });
    case "event":
      return (
        <>
          {text("event", "event", "Event", { required: true, placeholder: "order.paid" })}
          {text("condition", "if", "If", { placeholder: "payload.total > 100", help: "without it every event of the name starts a run" })}
        </>
      );
    default:
      return null;
  }
}

/** Bounds, and what a change of the clocks does. */
function More({ draft, text, choose }: { draft: Draft; text: Text; choose: Choose }) {
  const used = [draft.gap, draft.overlapping, draft.start, draft.end, draft.maxRuns, draft.exdates].some((value) => value !== "");
  return (
    <details open={used || undefined}>
      <summary>Bounds and changes of the clocks</summary>
      <div className={styles.grid}>
        {draft.when === "every" ? null : choose("gap", "dst.gap", "A time that clocks skip", GAPS)}
        {draft.when === "every" ? null : choose("overlapping", "dst.overlap", "A time that occurs twice", OVERLAPS)}
        {text("start", "start", "Not before", { placeholder: "2030-01-01T00:00:00Z" })}
        {text("end", "end", "Not after", { placeholder: "2030-12-31T23:59:00Z" })}
        {text("maxRuns", "max_runs", "Runs at most")}
        {draft.when === "rrule" ? text("exdates", "exdates", "Fires left out", { help: "times, with commas between them" }) : null}
      </div>
    </details>
  );
}

function inZone(draft: Draft): { help?: string } {
  return draft.timezone === "" && LOCAL_ZONE !== "UTC" ? { help: `UTC unless you say otherwise; you are in ${LOCAL_ZONE}` } : {};
}
