// Ctrl-K: pages and verbs; jobs and workflows by a part of their name; queues, tasks and workers by its beginning; runs,
// operations and backfills by their ids.
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { type KeyboardEvent, useEffect, useState } from "react";
import { get } from "../api/client";
import type { IdList, JobListRow, JobRows, Match, Matches } from "../api/schema";
import { prefer } from "../lib/preferences";
import { Dialog } from "../ui/Dialog";
import { words } from "../ui/StateMark";
import styles from "./Palette.module.css";
import { usePlaces } from "./places";

interface Entry {
  key: string;
  kind: string;
  text: string;
  note?: string;
  act: () => void;
}

export function Palette({ onClose }: { onClose: () => void }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const entries = useEntries(text.trim());
  useEffect(() => setAt(0), [text]);
  const chosen = Math.min(at, entries.length - 1);
  const press = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step !== 0) {
      event.preventDefault();
      setAt((chosen + step + entries.length) % Math.max(1, entries.length));
    } else if (event.key === "Enter" && entries[chosen] !== undefined) {
      event.preventDefault();
      entries[chosen].act();
      onClose();
    }
  };
  return (
    <Dialog title="Search" onClose={onClose}>
      <input
        className={styles.input} placeholder="A page, a job, a queue, the id of a run…" value={text} role="combobox"
        aria-expanded="true" aria-controls="palette" aria-activedescendant={chosen < 0 ? undefined : `entry-${chosen}`} aria-label="Search"
        onChange={(event) => setText(event.target.value)} onKeyDown={press}
      />
      <ul id="palette" className={styles.list} role="listbox" aria-label="Found">
        {entries.map((entry, index) => (
          <li
            key={entry.key} id={`entry-${index}`} role="option" aria-selected={index === chosen} className={styles.entry}
            onPointerMove={() => setAt(index)} onClick={() => { entry.act(); onClose(); }}
          >
            <span className={styles.kind}>{entry.kind}</span>
            <span className="cut">{entry.text}</span>
            {entry.note ? <span className={`${styles.note} cut`}>{entry.note}</span> : null}
          </li>
        ))}
      </ul>
      {entries.length === 0 ? <p className="muted">Nothing is called so.</p> : null}
    </Dialog>
  );
}

const isWorkflow = (job: JobListRow): boolean => job.workflow_version !== null && job.workflow_version !== undefined;

function placeOf(job: JobListRow) {
  return isWorkflow(job) ? { to: "/workflows/$workflow", params: { workflow: job.job_id } } : { to: "/jobs/$job", params: { job: job.job_id } };
}

/** Jobs and runs are found by better means. */
const OTHERS: Record<string, (match: Match) => { to: string; search: Record<string, string> }> = {
  queue: (match) => ({ to: "/queues", search: { q: match.id } }),
  task: (match) => ({ to: "/runs", search: { task: match.id } }),
  worker: (match) => ({ to: "/runs", search: { worker: match.id } }),
};

function useEntries(text: string): Entry[] {
  const navigate = useNavigate();
  const places = usePlaces();
  const [asked, setAsked] = useState("");
  useEffect(() => {
    const timer = window.setTimeout(() => setAsked(text), 150);
    return () => window.clearTimeout(timer);
  }, [text]);
  const jobs = useQuery({
    queryKey: ["palette", "jobs", asked],
    queryFn: ({ signal }) => get<JobRows>("/v1/jobs", { q: asked, limit: 8, view: "row" }, signal),
    enabled: asked.length > 1,
  });
  const ids = useQuery({
    queryKey: ["palette", "ids", asked],
    queryFn: ({ signal }) => get<IdList>("/v1/ids", { part: asked }, signal),
    enabled: /^[0-9a-f-]{4,36}$/i.test(asked),
  });
  const others = useQuery({
    queryKey: ["palette", "others", asked],
    queryFn: ({ signal }) => get<Matches>("/v1/search", { q: asked }, signal),
    enabled: asked.length > 1 && asked.length <= 200,
  });
  const fits = (name: string): boolean => name.toLowerCase().includes(text.toLowerCase());
  const entries: Entry[] = places.filter((place) => fits(place.name)).map((place) => ({
    key: place.to, kind: "Page", text: place.name, note: `g ${place.key}`, act: () => void navigate({ to: place.to }),
  }));
  const verbs: [string, () => void][] = [
    ["Create a job", () => void navigate({ to: "/jobs/new" })],
    ["Show failed runs", () => void navigate({ to: "/runs", search: { status: "FAILED" } })],
    ["Show running runs", () => void navigate({ to: "/runs", search: { status: "RUNNING" } })],
    ["Show paused jobs", () => void navigate({ to: "/jobs", search: { status: "PAUSED" } })],
    ["Show backfills", () => void navigate({ to: "/operations", search: { tab: "backfills" } })],
    ["Replay or discard dead letters", () => void navigate({ to: "/dead-letters" })],
    ["Pause or resume a queue", () => void navigate({ to: "/queues" })],
    ["Drain a worker", () => void navigate({ to: "/workers" })],
    ["Create a token", () => void navigate({ to: "/access" })],
    ["Dark theme", () => prefer({ theme: "dark" })],
    ["Light theme", () => prefer({ theme: "light" })],
    ["Times in UTC", () => prefer({ zone: "utc" })],
    ["Times in my zone", () => prefer({ zone: "local" })],
  ];
  for (const [name, act] of verbs) if (fits(name)) entries.push({ key: name, kind: "Verb", text: name, act });
  for (const found of ids.data?.ids ?? [])
    entries.unshift({
      key: `${found.kind} ${found.id}`, kind: words(found.kind), text: found.id, note: found.name ?? "",
      act: () => void navigate(found.kind === "run" || found.kind === "dead_letter" ? { to: "/runs/$run", params: { run: found.id } } : { to: "/jobs/$job", params: { job: found.id } }),
    });
  for (const job of text.length > 1 ? (jobs.data?.jobs ?? []) : [])
    entries.push({ key: `job ${job.job_id}`, kind: isWorkflow(job) ? "Workflow" : "Job", text: job.name, note: job.schedule, act: () => void navigate(placeOf(job)) });
  for (const match of text.length > 1 ? (others.data?.matches ?? []) : []) {
    const place = OTHERS[match.kind]?.(match);
    if (place !== undefined) entries.push({ key: `${match.kind} ${match.id}`, kind: words(match.kind), text: match.name ?? match.id, act: () => void navigate(place) });
  }
  return entries.slice(0, 24);
}
