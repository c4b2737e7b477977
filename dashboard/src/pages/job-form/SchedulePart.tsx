// When: each kind of schedule, explained by the server while one types, with its next ten fires.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { post } from "../../api/client";
import type { SchedulePreview } from "../../api/schema";
import { Field } from "../../ui/Field";
import { ProblemBox } from "../../ui/Problem";
import { Choice } from "../../ui/Tabs";
import { Button } from "../../ui/Button";
import { LOCAL_ZONE } from "../../lib/time";
import { type Draft, scheduleOf, type When } from "./draft";
import styles from "./JobForm.module.css";
import type { Set } from "./JobFormPage";

const KINDS: [When, string][] = [
  ["now", "Now"], ["at", "At a time"], ["every", "Every"], ["cron", "Cron"], ["rrule", "RRULE"], ["manual", "By hand"],
];
const WORDS: Partial<Record<When, string>> = {
  now: "It runs once, as soon as a worker is free.",
  manual: "It runs when somebody says so: here, by a command, or from code.",
};

export function SchedulePart({ draft, set, problems }: { draft: Draft; set: Set; problems: Record<string, string> }) {
  const words = WORDS[draft.when];
  const at = (name: string): string | undefined => problems[`schedule.${name}`] ?? problems[name];
  return (
    <div className={styles.part}>
      <Choice<When> label="Kind of schedule" value={draft.when} options={KINDS} onChange={(when) => set({ when })} />
      {words ? <p className="muted">{words}</p> : null}
      <div className={styles.grid}>
        {draft.when === "cron" ? (
          <Field label="Cron line" required value={draft.cron} placeholder="0 9 * * MON-FRI" problem={at("cron")} onChange={(event) => set({ cron: event.target.value })} />
        ) : null}
        {draft.when === "every" ? (
          <Field label="Every" required value={draft.every} placeholder="15m" problem={at("every")} onChange={(event) => set({ every: event.target.value })} />
        ) : null}
        {draft.when === "at" ? (
          <Field label="At" required value={draft.at} placeholder="2030-12-31T23:59:00Z" problem={at("at")} onChange={(event) => set({ at: event.target.value })} />
        ) : null}
        {draft.when === "rrule" ? (
          <Field label="RRULE" required value={draft.rrule} placeholder="FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=18" problem={at("rrule")} onChange={(event) => set({ rrule: event.target.value })} />
        ) : null}
        {["cron", "rrule", "at"].includes(draft.when) ? (
          <Field
            label="Zone" value={draft.timezone} placeholder="UTC" list="zones" problem={at("timezone")}
            help={draft.timezone === "" && LOCAL_ZONE !== "UTC" ? `UTC unless you say otherwise; you are in ${LOCAL_ZONE}` : undefined}
            onChange={(event) => set({ timezone: event.target.value })}
          />
        ) : null}
        {["cron", "rrule", "every"].includes(draft.when) ? (
          <>
            <Field label="Calendar" value={draft.calendar} problem={at("calendar")} help="leave out the days that it excludes" onChange={(event) => set({ calendar: event.target.value })} />
            <Field label="Jitter" value={draft.jitter} problem={at("jitter")} help="a delay of its own for each fire, up to this" onChange={(event) => set({ jitter: event.target.value })} />
          </>
        ) : null}
      </div>
      <datalist id="zones">
        {Intl.supportedValuesOf("timeZone").map((zone) => (
          <option key={zone} value={zone} />
        ))}
      </datalist>
      {words ? null : <Preview draft={draft} set={set} />}
    </div>
  );
}

function Preview({ draft, set }: { draft: Draft; set: Set }) {
  const schedule = scheduleOf(draft);
  const [asked, setAsked] = useState<{ text: string; schedule: unknown } | null>(null);
  const text = JSON.stringify([schedule, draft.jobId]);
  useEffect(() => {
    const timer = window.setTimeout(() => setAsked(schedule ? { text, schedule } : null), 250);
    return () => window.clearTimeout(timer);
  }, [text]);
  const preview = useQuery({
    queryKey: ["preview", asked?.text],
    queryFn: () => post<SchedulePreview>("/v1/schedules:preview", { schedule: asked?.schedule, n: 10, ...(draft.jobId ? { job_id: draft.jobId } : {}) }),
    enabled: asked !== null,
    placeholderData: keepPreviousData,
    retry: false,
  });
  if (asked === null) return null;
  if (preview.error && asked.text === text) return <ProblemBox error={preview.error} />;
  const shown = preview.data;
  if (shown === undefined) return null;
  return (
    <div className={styles.part} aria-live="polite">
      <p className={styles.words}>{shown.explanation}</p>
      {shown.notes.map((note) => (
        <p key={note} className={styles.warn}>
          {note}
        </p>
      ))}
      {shown.spread ? (
        <p className={styles.warn}>
          {shown.spread.reason}{" "}
          {shown.spread.cron ? <Button onClick={() => set({ cron: shown.spread?.cron ?? "" })}>Use {shown.spread.cron}</Button> : null}{" "}
          {shown.spread.jitter ? <Button onClick={() => set({ jitter: shown.spread?.jitter ?? "" })}>Jitter {shown.spread.jitter}</Button> : null}
        </p>
      ) : null}
      <ol className={styles.fires} aria-label="Next fires">
        {shown.fires.map((fire) => (
          <li key={fire.at}>
            {fire.weekday.slice(0, 3)} {fire.local.replace("T", " ")}
          </li>
        ))}
      </ol>
      <p className="muted">
        Times in {shown.timezone} · on average {new Intl.NumberFormat("en", { maximumSignificantDigits: 3 }).format(shown.fires_per_day)} fires a day
      </p>
    </div>
  );
}
