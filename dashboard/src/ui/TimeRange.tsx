// The time that a list is about, in the address: a preset such as w=24h, or two moments.
import { useMemo, useState } from "react";
import { useNow } from "../live/clock";
import { Button } from "./Button";
import { useSetSearch } from "./Filters";
import styles from "./Filters.module.css";
import { Choice } from "./Tabs";

export const HOURS: Record<string, number> = { "1h": 1, "6h": 6, "24h": 24, "7d": 168, "30d": 720 };
const STEP_MS = 300_000;
const CUSTOM = "custom";
const ALL = "all";

export interface RangeSearch {
  w?: string;
  since?: string;
  until?: string;
}

/** The moments that the address means. A preset moves on every five minutes: then rows do not jump with each look. */
export function useRange({ w, since, until }: RangeSearch): { since: string | undefined; until: string | undefined } {
  const now = useNow(false);
  const hours = since === undefined && until === undefined && w !== undefined ? HOURS[w] : undefined;
  const step = Math.floor(now / STEP_MS);
  return useMemo(() => {
    if (hours === undefined) return { since, until };
    return { since: new Date(step * STEP_MS - hours * 3_600_000).toISOString(), until: undefined };
  }, [hours, since, until, step]);
}

interface Props {
  search: RangeSearch;
  /** What is shown without a choice: "all", or one of the presets. */
  usual?: string;
  /** The list has no end: only its beginning is chosen. */
  open?: boolean;
}

export function TimeRange({ search, usual = ALL, open = false }: Props) {
  const set = useSetSearch();
  const exact = search.since !== undefined || search.until !== undefined;
  const [typing, setTyping] = useState(exact);
  const custom = exact || typing;
  const value = custom ? CUSTOM : search.w !== undefined && search.w in HOURS ? search.w : usual;
  const presets: [string, string][] = Object.keys(HOURS).map((one) => [one, one]);
  const options: [string, string][] = [...(usual === ALL ? [[ALL, "All time"] as [string, string]] : []), ...presets, [CUSTOM, "Custom"]];
  const choose = (next: string): void => {
    setTyping(next === CUSTOM);
    if (next !== CUSTOM) set({ w: next === usual ? undefined : next, since: undefined, until: undefined }, true);
  };
  return (
    <div className={styles.range} role="group" aria-label="Time range">
      <Choice label="Preset" value={value} options={options} onChange={choose} />
      {custom ? <Custom key={`${search.since} ${search.until}`} search={search} open={open} /> : null}
    </div>
  );
}

function Custom({ search, open }: { search: RangeSearch; open: boolean }) {
  const set = useSetSearch();
  const [since, setSince] = useState(asInput(search.since));
  const [until, setUntil] = useState(asInput(search.until));
  const wrong = since !== "" && until !== "" && since >= until;
  return (
    <form
      className={styles.range}
      onSubmit={(event) => {
        event.preventDefault();
        if (!wrong) set({ w: undefined, since: asMoment(since), until: asMoment(until) }, true);
      }}
    >
      <input type="datetime-local" step={1} aria-label="From, UTC" className={styles.select} value={since} onChange={(event) => setSince(event.target.value)} />
      {open ? null : (
        <input type="datetime-local" step={1} aria-label="To, UTC" className={styles.select} value={until} aria-invalid={wrong} onChange={(event) => setUntil(event.target.value)} />
      )}
      <span className="muted">{wrong ? "The end is not after the beginning." : "UTC"}</span>
      <Button type="submit" disabled={wrong}>
        Show
      </Button>
    </form>
  );
}

function asInput(moment: string | undefined): string {
  const at = moment === undefined ? NaN : Date.parse(moment);
  return Number.isNaN(at) ? "" : new Date(at).toISOString().slice(0, 19);
}

function asMoment(text: string): string | undefined {
  return text === "" ? undefined : new Date(`${text}Z`).toISOString().replace(".000Z", "Z");
}
