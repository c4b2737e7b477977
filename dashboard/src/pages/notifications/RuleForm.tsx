// Creates a rule, or replaces its settings. What is empty has its default.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get } from "../../api/client";
import type { ChannelList, NotableEvent, RuleView } from "../../api/schema";
import type { Same } from "../../ui/AsCommand";
import { Confirm } from "../../ui/Dialog";
import { Choices, Field } from "../../ui/Field";
import { say } from "../../ui/Toasts";
import { listed, store, useProblems, written } from "./settings";

const EVENTS: Record<NotableEvent, string> = {
  failure: "a run failed, with reminders", first_failure: "a run failed, without reminders", every_failure: "every run that failed",
  tries_exhausted: "the last attempt failed", recovered: "it is over", success: "a run succeeded", fire_missed: "fires were missed",
  started_late: "a run started late", ran_too_long: "a run takes too long", deadline_missed: "a deadline was missed",
  worker_lost: "a worker was lost", breaker_opened: "a circuit breaker opened", breaker_closed: "a circuit breaker closed",
  backfill_ended: "a backfill has ended", operation_ended: "an operation has ended", success_rate_below: "too few runs succeed",
  retries_above: "too many attempts are retried", dead_letters_above: "too many dead letters", queue_behind: "runs wait too long", no_worker: "no worker takes a run", quota_near: "80 % of a quota are used",
  lag_above: "runs start late", pause_forgotten: "a pause was forgotten", never_ran: "a job never ran", always_fails: "a job always fails",
  clocks_differ: "clocks differ", database_near_limit: "the database is near its limits", scheduler_failover: "a scheduler was replaced",
  approval_waits: "a step waits for an approval",
};
const CONDITIONS: NotableEvent[] = [
  "success_rate_below", "retries_above", "lag_above", "dead_letters_above", "queue_behind", "no_worker", "quota_near", "pause_forgotten", "never_ran", "always_fails", "clocks_differ",
  "database_near_limit",
];
const DAYS = ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"];
const TEXTS = ["description", "job", "task", "queue", "labels", "group_wait", "group_interval", "repeat_interval", "over", "above", "below", "from", "until", "timezone", "after"] as const;
type Texts = Record<(typeof TEXTS)[number], string>;

export function RuleForm({ rule, onClose, renew }: { rule: RuleView | null; onClose: () => void; renew: () => void }) {
  const [name, setName] = useState(rule?.name ?? "");
  const [on, setOn] = useState<string[]>(rule?.on ?? ["failure", "recovered"]);
  const [to, setTo] = useState<string[]>(rule?.to ?? []);
  const [days, setDays] = useState<string[]>(rule?.quiet?.days ?? []);
  const [escalateTo, setEscalateTo] = useState<string[]>(rule?.escalate?.to ?? []);
  const [texts, setTexts] = useState<Texts>(() => textsOf(rule));
  const problems = useProblems();
  const channels = useQuery({ queryKey: ["channels", "names"], queryFn: ({ signal }) => get<ChannelList>("/v1/channels", { limit: 1000 }, signal) });
  const names = [...new Set([...(channels.data?.channels ?? []).map((one) => one.name), ...to, ...escalateTo])];
  const body = { on, to, ...bodyOf(texts, on, days, escalateTo) };
  const path = `/v1/rules/${encodeURIComponent(name.trim())}`;
  const same: Same = { method: "PUT", path, body, python: ["set_rule", name.trim(), body] };
  const act = problems.watch(async () => {
    await store(path, "rule", rule?.version ?? null, body);
    say(`The rule ${name.trim()} is ${rule ? "changed" : "created"}.`);
    renew();
  });
  const text = (field: keyof Texts, label: string, more: { help?: string; placeholder?: string; of?: string; inputMode?: "decimal" } = {}) => {
    const { of = field, ...rest } = more;
    return <Field label={label} problem={problems.of(of)} value={texts[field]} onChange={(event) => setTexts({ ...texts, [field]: event.target.value })} {...rest} />;
  };
  return (
    <Confirm title={rule ? `Edit the rule ${rule.name}` : "Create a rule"} operation="rules.put" verb={rule ? "Save" : "Create"} act={act} onClose={onClose} onConflict={renew} same={same}>
      {rule ? null : <Field label="Name" required placeholder="all-failures" problem={problems.of("name")} value={name} onChange={(event) => setName(event.target.value)} />}
      <Choices label="On" problem={problems.of("on")} chosen={on} onChange={setOn} options={Object.entries(EVENTS).map(([event, words]) => [event, `${event}: ${words}`])} />
      <Choices label="To" problem={problems.of("to")} chosen={to} onChange={setTo} options={names.map((one) => [one, one])} help={channels.data && names.length === 0 ? "There is no channel yet. Create one first." : undefined} />
      {on.some((event) => (CONDITIONS as string[]).includes(event)) ? (
        <>
          {text("above", "Above", { inputMode: "decimal", help: "the bound of a condition; empty: its default" })}
          {text("below", "Below", { inputMode: "decimal", help: "percent of runs that succeed; empty: 95" })}
          {text("over", "Over", { placeholder: "1h", help: "the window of a condition; empty: its default" })}
        </>
      ) : null}
      <details open={rule !== null && Boolean(rule.job ?? rule.task ?? rule.queue ?? (Object.keys(rule.labels ?? {}).length > 0 || null))}>
        <summary>Which runs it is about</summary>
        {text("job", "Job", { help: "empty: all" })}
        {text("task", "Task", { help: "empty: all" })}
        {text("queue", "Queue", { help: "empty: all" })}
        {text("labels", "Labels", { placeholder: "team=payments", help: "jobs that have all of these, with commas" })}
      </details>
      <details>
        <summary>When it tells</summary>
        {text("group_wait", "Group wait", { placeholder: "5s", help: "how long the first message waits for more" })}
        {text("group_interval", "Group interval", { placeholder: "1m", help: "one message at most in this time" })}
        {text("repeat_interval", "Repeat interval", { placeholder: "4h", help: "how often it reminds of what has not recovered" })}
        {text("from", "Quiet from", { placeholder: "22:00", of: "quiet" })}
        {text("until", "Quiet to", { placeholder: "07:00" })}
        {text("timezone", "Time zone", { placeholder: "UTC" })}
        <Choices label="Quiet on" help="none: every day" chosen={days} onChange={setDays} options={DAYS.map((one) => [one, one])} />
        {text("after", "Escalate after", { placeholder: "30m", of: "escalate", help: "if nobody has acknowledged it" })}
        <Choices label="Escalate to" chosen={escalateTo} onChange={setEscalateTo} options={names.map((one) => [one, one])} />
      </details>
      {text("description", "Description")}
    </Confirm>
  );
}

function textsOf(rule: RuleView | null): Texts {
  const empty = Object.fromEntries(TEXTS.map((one) => [one, ""])) as Texts;
  if (rule === null) return empty;
  const number = (value: number | null | undefined): string => (value === null || value === undefined ? "" : String(value));
  return {
    description: rule.description ?? "", job: rule.job ?? "", task: rule.task ?? "", queue: rule.queue ?? "",
    labels: Object.entries(rule.labels ?? {}).map(([label, value]) => `${label}=${value}`).join(", "),
    group_wait: written(rule.group_wait), group_interval: written(rule.group_interval), repeat_interval: written(rule.repeat_interval),
    over: written(rule.over), above: number(rule.above), below: number(rule.below),
    from: rule.quiet?.from ?? "", until: rule.quiet?.to ?? "", timezone: rule.quiet?.timezone ?? "", after: written(rule.escalate?.after),
  };
}

function bodyOf(texts: Texts, on: string[], days: string[], escalateTo: string[]): Record<string, unknown> {
  const body: Record<string, unknown> = {};
  for (const name of ["description", "job", "task", "queue", "group_wait", "group_interval", "repeat_interval"] as const) if (texts[name].trim() !== "") body[name] = texts[name].trim();
  const labels = listed(texts.labels).map((one) => {
    const [label = "", ...value] = one.split("=");
    return [label.trim(), value.join("=").trim()] as const;
  });
  if (labels.length > 0) body["labels"] = Object.fromEntries(labels);
  if (on.some((event) => (CONDITIONS as string[]).includes(event))) {
    if (texts.over.trim() !== "") body["over"] = texts.over.trim();
    for (const name of ["above", "below"] as const) {
      const text = texts[name].trim();
      if (text !== "") body[name] = Number.isFinite(Number(text)) ? Number(text) : text; // the server names what is no number
    }
  }
  const { from, until, timezone, after } = texts;
  if (from.trim() || until.trim()) body["quiet"] = { from: from.trim(), to: until.trim(), ...(timezone.trim() ? { timezone: timezone.trim() } : {}), ...(days.length > 0 ? { days } : {}) };
  if (after.trim() || escalateTo.length > 0) body["escalate"] = { after: after.trim(), to: escalateTo };
  return body;
}
