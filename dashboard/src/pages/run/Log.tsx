// The log: only the lines in view are in the page, and only some of the others in the browser. Scrolling up stops
// following.
import {
  ArrowDown, ArrowDownToLine, ArrowUpToLine, ChevronDown, ChevronUp, Clock, Download, FileDown, Link2, Maximize, Minimize, OctagonAlert, WrapText,
} from "lucide-react";
import { type MouseEvent, useState } from "react";
import { isLive, runPath } from "../../api/queries";
import type { RunView } from "../../api/schema";
import type { Line, Span } from "../../lib/ansi";
import { bytes, count } from "../../lib/format";
import { levelOf } from "../../lib/levels";
import { timeOfLine } from "../../lib/lineTimes";
import { prefer, type Preferences, usePreferences } from "../../lib/preferences";
import { clockTime, zoneOf } from "../../lib/time";
import { Button } from "../../ui/Button";
import { toClipboard } from "../../ui/Copy";
import { useSetSearch } from "../../ui/Filters";
import { ProblemBox } from "../../ui/Problem";
import { say } from "../../ui/Toasts";
import styles from "./Log.module.css";
import type { LogWindow } from "./logWindow";
import { useLog } from "./useLog";
import { type Found, useLogSearch } from "./useLogSearch";
import { HEIGHT } from "./logLayout";
import { useColumns } from "./useColumns";
import { useLogView } from "./useLogView";

const TIMES = { none: "not shown", clock: "as a time of day", since: "since the start" };
const AROUND = 20;
const SHOWN = 60;

interface Props {
  run: RunView;
  attempt: number;
  find: string;
  /** The byte at which the line begins that the address names. */
  line?: number | null;
  /** It is one of two attempts side by side. */
  beside?: boolean;
  /** The attempt that is shown beside it. */
  other?: number;
}

export default function Log({ run, attempt, find, line = null, beside = false, other = 0 }: Props) {
  const { wrap, lineTimes, zone } = usePreferences();
  const source = useLog(run, attempt);
  const { window } = source;
  const found = useLogSearch(run.run_id, attempt > 0 ? attempt : window.attempt, find);
  const { columns, probe, watch } = useColumns(wrap, lineTimes !== "none");
  const view = useLogView(source, found, attempt, find, line, columns);
  const { top, follow, current, at, layout } = view;
  const [until, setUntil] = useState<number | null>(null);
  const [full, setFull] = useState(false);
  const set = useSetSearch();
  const total = window.count;
  const chosen = (): Line[] => (current === null ? [] : window.slice(Math.min(current, until ?? current), Math.max(current, until ?? current) + 1));
  const textOf = (): string => chosen().map((one) => one.plain).join("\n") + "\n";
  const link = async (): Promise<void> => {
    const place = new URL(location.href);
    place.searchParams.set("attempt", String(window.attempt));
    place.searchParams.set("at", String(chosen()[0]?.at ?? 0));
    if (await toClipboard(place.href)) say("The link to the line is copied.");
  };
  /** A click at a number marks the line, with Shift all lines up to it. */
  const clicked = (event: MouseEvent): void => {
    const number = (event.target as Element).closest<HTMLElement>("[data-line]");
    if (number === null) return;
    const place = Number(number.dataset["line"]);
    if (event.shiftKey && current !== null) return setUntil(place);
    setUntil(null);
    view.mark(place);
    if (!beside) set({ attempt: String(window.attempt), at: String(window.slice(place, place + 1)[0]?.at ?? 0) });
  };

  const from = Math.max(0, layout.at(top) - AROUND);
  const shown = window.slice(from, from + SHOWN + AROUND * 2);
  return (
    <section
      ref={watch} className={`${styles.log} ${full ? styles.full : ""} ${wrap ? styles.wrapped : ""}`} aria-label={beside ? `Log of attempt ${attempt}` : "Log"} onKeyDown={(event) => event.key === "Escape" && setFull(false)}
    >
      <span ref={probe} className={styles.probe} aria-hidden="true">0000000000</span>
      <div className={styles.tools}>
        <input
          type="search" placeholder="Find" aria-label="Find in the log" defaultValue={find} className={styles.find} maxLength={200}
          onChange={(event) => {
            view.finding();
            set({ find: event.target.value || undefined });
          }}
          onKeyDown={(event) => event.key === "Enter" && view.step(event.shiftKey ? -1 : 1)}
        />
        {find ? (
          <>
            <span className="muted" role="status">
              {inWords(found, at)}
            </span>
            <Button kind="quiet" icon={<ChevronUp size={14} />} aria-label="Previous match" data-key="N" onClick={() => view.step(-1)} />
            <Button kind="quiet" icon={<ChevronDown size={14} />} aria-label="Next match" data-key="n" onClick={() => view.step(1)} />
          </>
        ) : null}
        <span className={styles.space} />
        {beside ? <strong>Attempt {attempt}</strong> : <Attempts run={run} attempt={attempt} beside={other} />}
        <Button kind="quiet" icon={<WrapText size={14} />} aria-label="Wrap lines" aria-pressed={wrap} title="Wrap lines" onClick={() => prefer({ wrap: !wrap })} />
        <Button
          kind="quiet" icon={<Clock size={14} />} aria-label={`Times of lines: ${TIMES[lineTimes]}`} title={`Times of lines: ${TIMES[lineTimes]}`}
          onClick={() => prefer({ lineTimes: lineTimes === "none" ? "clock" : lineTimes === "clock" ? "since" : "none" })}
        />
        {current === null ? null : (
          <>
            <Button kind="quiet" icon={<Link2 size={14} />} aria-label="Copy a link to the line" title="Copy a link to the line" onClick={() => void link()} />
            <Button kind="quiet" icon={<FileDown size={14} />} aria-label="Download the marked lines" title="Download the marked lines" onClick={() => save(run.run_id, textOf())} />
          </>
        )}
        <Button kind="quiet" icon={<OctagonAlert size={14} />} aria-label="Next error" title="Next error" onClick={view.nextError} />
        <Button
          kind="quiet" icon={full ? <Minimize size={14} /> : <Maximize size={14} />} aria-label="Full screen" aria-pressed={full} title="Full screen"
          onClick={() => setFull(!full)}
        />
        <Button kind="quiet" icon={<ArrowUpToLine size={14} />} aria-label="Beginning of the log" onClick={view.openBeginning} />
        <Button kind="quiet" icon={<ArrowDownToLine size={14} />} aria-label="End of the log" data-key="f" onClick={view.openEnd} />
        <a className={styles.download} href={`${runPath(run.run_id)}/logs${attempt > 0 ? `?attempt=${attempt}` : ""}`} download={`${run.run_id}.log`}>
          <Download size={14} aria-hidden="true" /> <span>Download</span>
        </a>
      </div>
      {source.error ? <ProblemBox error={source.error} /> : null}
      {found.error ? <ProblemBox error={found.error} /> : null}
      <div ref={view.box} className={`${styles.box} ${total === 0 ? styles.low : ""}`} onScroll={view.scrolled} tabIndex={0} role="log" aria-label="Output" aria-live="off">
        <div style={{ height: `${layout.height}px` }} className={styles.all} onClick={clicked}>
          {shown.map((line, index) => (
            <LogLine
              key={from + index} line={line} number={window.first === null ? null : window.first + from + index}
              at={from + index} place={layout.top(from + index)} height={wrap ? layout.top(from + index + 1) - layout.top(from + index) : HEIGHT}
              find={find} current={current !== null && from + index >= Math.min(current, until ?? current) && from + index <= Math.max(current, until ?? current)}
              time={lineTimes === "none" ? null : timeText(line, lineTimes, run, zoneOf(zone))}
            />
          ))}
        </div>
        {total === 0 && source.opened ? <p className={styles.nothing}>{window.ended && !isLive(run.status) ? "It printed nothing." : "Nothing printed yet."}</p> : null}
      </div>
      {follow || (window.ended && window.reachesEnd) ? null : (
        <button type="button" className={styles.down} onClick={view.openEnd}>
          <ArrowDown size={14} aria-hidden="true" /> {window.ended ? "End" : "Follow"}
        </button>
      )}
      <p className={styles.foot}>{footOf(window)}</p>
    </section>
  );
}

function Attempts({ run, attempt, beside }: { run: RunView; attempt: number; beside: number }) {
  const set = useSetSearch();
  const attempts = Array.from({ length: run.attempt_number }, (_, index) => index + 1).slice(-8);
  if (attempts.length < 2) return null;
  return (
    <>
    <label className={styles.attempts}>
      Beside{" "}
      <select value={beside} onChange={(event) => set({ beside: event.target.value === "0" ? undefined : event.target.value })}>
        <option value={0}>no other</option>
        {attempts.map((number) => (
          <option key={number} value={number}>
            {number}
          </option>
        ))}
      </select>
    </label>
    <label className={styles.attempts}>
      Attempt{" "}
      <select value={attempt} onChange={(event) => set({ attempt: event.target.value === "0" ? undefined : event.target.value, at: undefined })}>
        <option value={0}>latest</option>
        {attempts.map((number) => (
          <option key={number} value={number}>
            {number}
          </option>
        ))}
      </select>
    </label>
    </>
  );
}

interface LineProps {
  line: Line;
  at: number;
  height: number;
  time: string | null;
  number: number | null;
  place: number;
  find: string;
  current: boolean;
}

function LogLine({ line, number, at, place, height, find, current, time }: LineProps) {
  const hit = find !== "" && line.plain.toLowerCase().includes(find.toLowerCase());
  return (
    <div data-level={levelOf(line.plain) ?? undefined} className={`${styles.line} ${hit ? styles.hit : ""} ${current ? styles.current : ""}`} style={{ top: `${place}px`, height: `${height}px` }}>
      <span className={styles.number} data-line={at} aria-hidden="true">
        {number ?? "·"}
      </span>
      {time === null ? null : <span className={styles.time}>{time}</span>}
      <span dir="ltr">
        {line.spans.map((span, index) => (
          <span key={index} className={classOf(span)} style={styleOf(span)}>
            {span.text}
          </span>
        ))}
      </span>
    </div>
  );
}

/** What the line says about its time; nothing where it says none. */
function timeText(line: Line, shown: Preferences["lineTimes"], run: RunView, zone: string): string {
  const at = timeOfLine(line.plain);
  if (at === null) return "";
  if (shown === "clock") return `${clockTime(at, zone)}.${String(at % 1000).padStart(3, "0")}`;
  const since = (at - Date.parse(run.start_time ?? run.scheduled_for)) / 1000;
  return `${since < 0 ? "−" : "+"}${Math.abs(since).toFixed(3)} s`;
}

function save(run: string, text: string): void {
  const file = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  const link = document.createElement("a");
  link.href = file;
  link.download = `${run}-lines.log`;
  link.click();
  URL.revokeObjectURL(file);
}

function classOf({ color, ground, styles: given }: Span): string {
  const names = [color?.startsWith("ansi-") ? color : "", ground?.startsWith("ansi-") ? ground.replace("ansi-", "ground-") : "", ...given];
  return names.map((name) => styles[name] ?? "").join(" ");
}

/** Exact colours. Those of the theme are classes. */
function styleOf({ color, ground }: Span): { color?: string; backgroundColor?: string } {
  return { ...(color?.startsWith("rgb") ? { color } : {}), ...(ground?.startsWith("rgb") ? { backgroundColor: ground } : {}) };
}

function inWords(found: Found, at: number): string {
  const { matches, searching, searchedTo } = found;
  const all = matches.length >= 1000 ? `${count(matches.length)}+` : count(matches.length);
  const place = matches.length === 0 ? (searching ? "" : "none") : `${Math.min(at, matches.length - 1) + 1}/${all}`;
  return searching ? `${place} searched ${bytes(searchedTo)} of ${bytes(found.bytes)}`.trim() : place;
}

function footOf(window: LogWindow): string {
  const part = window.start > 0 || !window.reachesEnd ? `${bytes(window.start)} to ${bytes(window.end)} of ` : "";
  const state = window.ended ? "" : window.reachesEnd ? " · following" : " · still running";
  return `${part}${bytes(window.bytes)}${window.truncated ? ", the rest was not kept" : ""}${state}`;
}
