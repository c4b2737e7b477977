// Every attempt with its worker, how long it took, and what its processes used.
import type { RunView, TimelineEntry, UsageView } from "../../api/schema";
import { bytes, duration, errorLine, plain } from "../../lib/format";
import { Card } from "../../ui/Page";
import { StateMark } from "../../ui/StateMark";
import { type Column, Table } from "../../ui/Table";
import { Time } from "../../ui/Time";

interface Attempt {
  number: number;
  state: string;
  worker: string | null;
  began: string | null;
  took: number | null;
  usage: UsageView | null;
  error: string | null;
}

const COLUMNS: Column<Attempt>[] = [
  { key: "state", head: "State", phone: "first", cell: (one) => <StateMark state={one.state} /> },
  { key: "number", head: "Attempt", align: "end", phone: "first", cell: (one) => <><span className="onPhone">attempt </span>{one.number}</> },
  { key: "began", head: "Began", cell: (one) => <Time at={one.began} exact none="not started" /> },
  { key: "took", head: "Ran", align: "end", cell: (one) => duration(one.took) },
  { key: "cpu", head: "CPU time", align: "end", room: 1, cell: (one) => (one.usage === null ? null : <>{duration(one.usage.cpu_s)}<span className="onPhone"> CPU</span></>) },
  { key: "memory", head: "Memory, at most", align: "end", room: 2, cell: (one) => (one.usage === null ? null : bytes(one.usage.rss_peak)) },
  { key: "worker", head: "Worker", cut: true, cell: (one) => one.worker },
  { key: "error", head: "Error", grow: true, cell: (one) => <span title={plain(one.error ?? "")}>{errorLine(one.error ?? "")}</span> },
];

export function Attempts({ run, entries }: { run: RunView; entries: TimelineEntry[] }) {
  const attempts = attemptsOf(run, entries);
  if (attempts.length === 0) return null;
  return (
    <Card flush title="Attempts">
      <Table label="Attempts" columns={COLUMNS} rows={attempts} rowKey={(one) => String(one.number)} />
    </Card>
  );
}

/** Newest first. An attempt has an entry for its start and, once it has ended, one for its end. */
function attemptsOf(run: RunView, entries: TimelineEntry[]): Attempt[] {
  const found = new Map<number, Attempt>();
  for (const entry of entries) {
    const number = entry.attempt;
    if (number === null || number === undefined || entry.state === "SCHEDULED" || entry.state === "CANCEL_REQUESTED" || entry.state === "QUEUED") continue;
    const known = found.get(number);
    const began = entry.state === "RUNNING" ? entry.at : (known?.began ?? null);
    const current = entry.state === "RUNNING" && number === run.attempt_number ? (run.usage ?? null) : null;
    found.set(number, {
      number, began, state: entry.state, worker: entry.worker_name ?? entry.worker_id ?? known?.worker ?? null, took: entry.duration ?? null,
      usage: entry.usage ?? current, error: entry.error ?? null,
    });
  }
  return [...found.values()].reverse();
}
