// The log: only the lines in view are in the page, and only some of the others in the browser. Scrolling up stops
// following.
import { ArrowDown, ArrowDownToLine, ArrowUpToLine, ChevronDown, ChevronUp, Download, Maximize, Minimize, OctagonAlert } from "lucide-react";
import { useEffect, useLayoutEffect, useRef, useState } from "react";
import { isLive, runPath } from "../../api/queries";
import type { RunView } from "../../api/schema";
import type { Line, Span } from "../../lib/ansi";
import { bytes, count } from "../../lib/format";
import { levelOf } from "../../lib/levels";
import { Button } from "../../ui/Button";
import { useSetSearch } from "../../ui/Filters";
import { ProblemBox } from "../../ui/Problem";
import { say } from "../../ui/Toasts";
import styles from "./Log.module.css";
import type { LogWindow } from "./logWindow";
import { useLog } from "./useLog";
import { type Found, useLogSearch } from "./useLogSearch";

const HEIGHT = 20;
const AROUND = 20;
const SHOWN = 60;
const NEAR = HEIGHT * 40;
const ABOVE_A_MATCH = 120;

export default function Log({ run, attempt, find }: { run: RunView; attempt: number; find: string }) {
  const source = useLog(run, attempt);
  const { window } = source;
  const found = useLogSearch(run.run_id, attempt > 0 ? attempt : window.attempt, find);
  const box = useRef<HTMLDivElement>(null);
  const shift = useRef(0);
  const target = useRef<number | null>(null);
  const [top, setTop] = useState(0);
  const [follow, setFollow] = useState(true);
  const [at, setAt] = useState(0);
  const [current, setCurrent] = useState<number | null>(null);
  const [full, setFull] = useState(false);
  const set = useSetSearch();
  source.pinned = follow;
  const total = window.count;

  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    if (target.current !== null) element.scrollTop = Math.max(0, target.current * HEIGHT - ABOVE_A_MATCH);
    else if (shift.current !== 0) element.scrollTop += shift.current;
    else if (follow) element.scrollTop = element.scrollHeight;
    target.current = null;
    shift.current = 0;
  });
  const move = (lines: number): void => {
    shift.current += lines * HEIGHT;
    setCurrent((place) => (place === null ? null : place + lines));
  };
  const scroll = (): void => {
    const element = box.current;
    if (element === null) return;
    const below = element.scrollHeight - element.scrollTop - element.clientHeight;
    setTop(element.scrollTop);
    setFollow(below < HEIGHT * 2 && window.reachesEnd);
    if (element.scrollTop < NEAR) void source.older().then((moved) => moved && move(moved.added));
    else if (below < NEAR) void source.newer().then((moved) => moved && move(-moved.dropped));
  };
  const openAt = async (byte: number, isMatch: boolean): Promise<void> => {
    const place = await source.openAt(byte);
    if (place === null) return;
    target.current = place;
    setFollow(false);
    setCurrent(isMatch ? place : null);
  };
  const openEnd = (): void => {
    setCurrent(null);
    setFollow(true);
    if (!window.reachesEnd) void source.openEnd();
  };
  const go = (place: number): void => {
    const match = found.matches[place];
    if (match === undefined) return;
    setAt(place);
    void openAt(match.start, true);
  };
  const jump = (step: 1 | -1): void => go((at + step + found.matches.length) % Math.max(1, found.matches.length));
  /** Among the lines that the page holds, from the one that is marked on, and then from the first. */
  const nextError = (): void => {
    const lines = window.slice(0, total);
    const after = lines.findIndex((line, index) => index > (current ?? -1) && levelOf(line.plain) === "error");
    const place = after >= 0 ? after : lines.findIndex((line) => levelOf(line.plain) === "error");
    if (place < 0) return say("None of the lines shown is an error.");
    target.current = place;
    setFollow(false);
    setCurrent(place);
  };
  const isFirst = found.text !== "" && found.matches.length > 0;
  useEffect(() => {
    if (isFirst) go(0);
  }, [isFirst, found.text]);

  const from = Math.max(0, Math.floor(top / HEIGHT) - AROUND);
  const shown = window.slice(from, from + SHOWN + AROUND * 2);
  return (
    <section className={`${styles.log} ${full ? styles.full : ""}`} aria-label="Log" onKeyDown={(event) => event.key === "Escape" && setFull(false)}>
      <div className={styles.tools}>
        <input
          type="search" placeholder="Find" aria-label="Find in the log" defaultValue={find} className={styles.find} maxLength={200}
          onChange={(event) => set({ find: event.target.value || undefined })}
          onKeyDown={(event) => event.key === "Enter" && jump(event.shiftKey ? -1 : 1)}
        />
        {find ? (
          <>
            <span className="muted" role="status">
              {inWords(found, at)}
            </span>
            <Button kind="quiet" icon={<ChevronUp size={14} />} aria-label="Previous match" onClick={() => jump(-1)} />
            <Button kind="quiet" icon={<ChevronDown size={14} />} aria-label="Next match" onClick={() => jump(1)} />
          </>
        ) : null}
        <span className={styles.space} />
        <Attempts run={run} attempt={attempt} />
        <Button kind="quiet" icon={<OctagonAlert size={14} />} aria-label="Next error" title="Next error" onClick={nextError} />
        <Button
          kind="quiet" icon={full ? <Minimize size={14} /> : <Maximize size={14} />} aria-label="Full screen" aria-pressed={full} title="Full screen"
          onClick={() => setFull(!full)}
        />
        <Button kind="quiet" icon={<ArrowUpToLine size={14} />} aria-label="Beginning of the log" onClick={() => void openAt(0, false)} />
        <Button kind="quiet" icon={<ArrowDownToLine size={14} />} aria-label="End of the log" onClick={openEnd} />
        <a className={styles.download} href={`${runPath(run.run_id)}/logs${attempt > 0 ? `?attempt=${attempt}` : ""}`} download={`${run.run_id}.log`}>
          <Download size={14} aria-hidden="true" /> <span>Download</span>
        </a>
      </div>
      {source.error ? <ProblemBox error={source.error} /> : null}
      {found.error ? <ProblemBox error={found.error} /> : null}
      <div ref={box} className={`${styles.box} ${total === 0 ? styles.low : ""}`} onScroll={scroll} tabIndex={0} role="log" aria-label="Output" aria-live="off">
        <div style={{ height: `${total * HEIGHT}px` }} className={styles.all}>
          {shown.map((line, index) => (
            <LogLine
              key={from + index} line={line} number={window.first === null ? null : window.first + from + index}
              place={(from + index) * HEIGHT} find={find} current={current === from + index}
            />
          ))}
        </div>
        {total === 0 && source.opened ? <p className={styles.nothing}>{window.ended && !isLive(run.status) ? "It printed nothing." : "Nothing printed yet."}</p> : null}
      </div>
      {follow || (window.ended && window.reachesEnd) ? null : (
        <button type="button" className={styles.down} onClick={openEnd}>
          <ArrowDown size={14} aria-hidden="true" /> {window.ended ? "End" : "Follow"}
        </button>
      )}
      <p className={styles.foot}>{footOf(window)}</p>
    </section>
  );
}

function Attempts({ run, attempt }: { run: RunView; attempt: number }) {
  const set = useSetSearch();
  const attempts = Array.from({ length: run.attempt_number }, (_, index) => index + 1).slice(-8);
  if (attempts.length < 2) return null;
  return (
    <label className={styles.attempts}>
      Attempt{" "}
      <select value={attempt} onChange={(event) => set({ attempt: event.target.value === "0" ? undefined : event.target.value })}>
        <option value={0}>latest</option>
        {attempts.map((number) => (
          <option key={number} value={number}>
            {number}
          </option>
        ))}
      </select>
    </label>
  );
}

interface LineProps {
  line: Line;
  number: number | null;
  place: number;
  find: string;
  current: boolean;
}

function LogLine({ line, number, place, find, current }: LineProps) {
  const hit = find !== "" && line.plain.toLowerCase().includes(find.toLowerCase());
  return (
    <div data-level={levelOf(line.plain) ?? undefined} className={`${styles.line} ${hit ? styles.hit : ""} ${current ? styles.current : ""}`} style={{ top: `${place}px` }}>
      <span className={styles.number} aria-hidden="true">
        {number ?? "·"}
      </span>
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
