// The log: only the lines in view are in the page. Scrolling up stops following.
import { ArrowDown, ChevronDown, ChevronUp, Download } from "lucide-react";
import { useEffect, useMemo, useRef, useState } from "react";
import { runPath } from "../../api/queries";
import type { RunView } from "../../api/schema";
import type { Line } from "../../lib/ansi";
import { count } from "../../lib/format";
import { Button } from "../../ui/Button";
import { useSetSearch } from "../../ui/Filters";
import { ProblemBox } from "../../ui/Problem";
import styles from "./Log.module.css";
import { useLog } from "./useLog";

const HEIGHT = 20;
const AROUND = 20;

export default function Log({ run, attempt, find }: { run: RunView; attempt: number; find: string }) {
  const output = useLog(run, attempt);
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [follow, setFollow] = useState(true);
  const [at, setAt] = useState(0);
  const set = useSetSearch();
  const { lines } = output;
  const matches = useMemo(() => matching(lines, find), [lines, lines.length, find]);
  useEffect(() => {
    if (follow && box.current !== null) box.current.scrollTop = box.current.scrollHeight;
  }, [follow, lines.length]);
  const scroll = (): void => {
    const element = box.current;
    if (element === null) return;
    setTop(element.scrollTop);
    const atEnd = element.scrollHeight - element.scrollTop - element.clientHeight < HEIGHT * 2;
    setFollow(atEnd);
  };
  const jump = (step: 1 | -1): void => {
    if (matches.length === 0) return;
    const next = (at + step + matches.length) % matches.length;
    setAt(next);
    setFollow(false);
    if (box.current !== null) box.current.scrollTop = Math.max(0, (matches[next] ?? 0) * HEIGHT - 120);
  };
  const shownFrom = Math.max(0, Math.floor(top / HEIGHT) - AROUND);
  const shown = lines.slice(shownFrom, shownFrom + 60 + AROUND * 2);
  const attempts = Array.from({ length: run.attempt_number }, (_, index) => index + 1).slice(-8);
  return (
    <section className={styles.log} aria-label="Log">
      <div className={styles.tools}>
        <input
          type="search" placeholder="Find" aria-label="Find in the log" defaultValue={find} className={styles.find}
          onChange={(event) => { set({ find: event.target.value || undefined }); setAt(0); }}
          onKeyDown={(event) => event.key === "Enter" && jump(event.shiftKey ? -1 : 1)}
        />
        {find ? (
          <>
            <span className="muted" role="status">
              {matches.length === 0 ? "none" : `${at + 1}/${count(matches.length)}`}
            </span>
            <Button kind="quiet" icon={<ChevronUp size={14} />} aria-label="Previous match" onClick={() => jump(-1)} />
            <Button kind="quiet" icon={<ChevronDown size={14} />} aria-label="Next match" onClick={() => jump(1)} />
          </>
        ) : null}
        <span className={styles.space} />
        {attempts.length > 1 ? (
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
        ) : null}
        <a className={styles.download} href={`${runPath(run.run_id)}/logs${attempt > 0 ? `?attempt=${attempt}` : ""}`} download={`${run.run_id}.log`}>
          <Download size={14} aria-hidden="true" /> Download
        </a>
      </div>
      {output.error ? <ProblemBox error={output.error} /> : null}
      <div ref={box} className={styles.box} onScroll={scroll} tabIndex={0} role="log" aria-label="Output" aria-live="off">
        <div style={{ height: `${lines.length * HEIGHT}px` }} className={styles.all}>
          {shown.map((line, index) => (
            <LogLine
              key={shownFrom + index} line={line} number={output.dropped + shownFrom + index + 1}
              place={(shownFrom + index) * HEIGHT} find={find} current={matches[at] === shownFrom + index && find !== ""}
            />
          ))}
        </div>
        {lines.length === 0 ? <p className={styles.nothing}>{output.ended ? "It printed nothing." : "Nothing printed yet."}</p> : null}
      </div>
      {follow || output.ended ? null : (
        <button type="button" className={styles.down} onClick={() => setFollow(true)}>
          <ArrowDown size={14} aria-hidden="true" /> Follow
        </button>
      )}
      <p className={styles.foot}>
        {count(output.dropped + lines.length)} lines{output.dropped > 0 ? `, the first ${count(output.dropped)} are not kept here` : ""}
        {output.ended ? "" : " · following"}
      </p>
    </section>
  );
}

function LogLine({ line, number, place, find, current }: { line: Line; number: number; place: number; find: string; current: boolean }) {
  const hit = find !== "" && line.plain.toLowerCase().includes(find.toLowerCase());
  return (
    <div className={`${styles.line} ${hit ? styles.hit : ""} ${current ? styles.current : ""}`} style={{ top: `${place}px` }}>
      <span className={styles.number} aria-hidden="true">
        {number}
      </span>
      <span dir="ltr">
        {line.spans.map((span, index) => (
          <span key={index} className={`${span.color ? (styles[span.color] ?? "") : ""} ${span.bold ? styles.bold : ""}`}>
            {span.text}
          </span>
        ))}
      </span>
    </div>
  );
}

function matching(lines: Line[], find: string): number[] {
  if (find === "") return [];
  const wanted = find.toLowerCase();
  const found: number[] = [];
  lines.forEach((line, index) => {
    if (line.plain.toLowerCase().includes(wanted)) found.push(index);
  });
  return found;
}
