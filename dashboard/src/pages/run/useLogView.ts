// Where the view of a log is: at its end, at a line that somebody has asked for, or where somebody has scrolled to.
// What was asked for last wins over everything that is still loading or searching.
import { type RefObject, useEffect, useLayoutEffect, useReducer, useRef, useState } from "react";
import { levelOf } from "../../lib/levels";
import { say } from "../../ui/Toasts";
import { HEIGHT, layoutOf, type LogLayout } from "./logLayout";
import type { LogSource } from "./logSource";
import type { Found } from "./useLogSearch";

const NEAR = HEIGHT * 40;
const ABOVE_A_MATCH = 120;

export interface LogView {
  box: RefObject<HTMLDivElement | null>;
  top: number;
  /** It stays at the end while there is more output. */
  follow: boolean;
  /** The place of the line that is marked, among those that are held. */
  current: number | null;
  /** Which match is shown. */
  at: number;
  scrolled: () => void;
  openBeginning: () => void;
  openEnd: () => void;
  /** The next match, or the one before. */
  step: (by: 1 | -1) => void;
  nextError: () => void;
  /** The text to find changes: its first match is shown as soon as it is found. */
  finding: () => void;
  layout: LogLayout;
  /** Marks a line that is held. */
  mark: (place: number) => void;
}

export function useLogView(source: LogSource, found: Found, attempt: number, find: string, line: number | null, columns: number | null): LogView {
  const { window } = source;
  const layout = layoutOf(window, columns);
  const drawn = useRef(layout);
  const wanted = useRef<number | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const shift = useRef(0);
  const goal = useRef<number | "end" | null>(null);
  const awaitsMatch = useRef(find !== "");
  const asked = useRef(attempt);
  const [top, setTop] = useState(0);
  const [follow, setFollow] = useState(true);
  const [at, setAt] = useState(0);
  const [current, setCurrent] = useState<number | null>(null);
  const [, render] = useReducer((count: number) => count + 1, 0);
  source.pinned = follow;

  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    drawn.current = layout;
    const { current: wanted } = goal;
    if (typeof wanted === "number") element.scrollTop = Math.max(0, layout.top(wanted) - ABOVE_A_MATCH);
    else if (follow || wanted === "end") element.scrollTop = element.scrollHeight;
    else if (shift.current !== 0) element.scrollTop += shift.current;
    if (wanted !== "end" || window.reachesEnd || source.error !== null) goal.current = null;
    shift.current = 0;
  });
  const move = (lines: number): void => {
    shift.current += lines > 0 ? layoutOf(window, columns).top(lines) : -drawn.current.top(-lines);
    setCurrent((place) => (place === null ? null : place + lines));
  };
  const scrolled = (): void => {
    const element = box.current;
    if (element === null) return;
    const below = element.scrollHeight - element.scrollTop - element.clientHeight;
    setTop(element.scrollTop);
    if (goal.current !== null) return;
    setFollow(below < HEIGHT * 2 && window.reachesEnd);
    if (element.scrollTop < NEAR) void source.older().then((moved) => moved && move(moved.added));
    else if (below < NEAR) void source.newer().then((moved) => moved && move(-moved.dropped));
  };
  const show = (place: number, isMarked: boolean): void => {
    goal.current = place;
    setFollow(false);
    setCurrent(isMarked ? place : null);
    render();
  };
  const openAt = async (byte: number, isMatch: boolean): Promise<void> => {
    awaitsMatch.current = false;
    goal.current = null;
    const place = await source.openAt(byte);
    if (place !== null) show(place, isMatch);
  };
  const openEnd = (): void => {
    awaitsMatch.current = false;
    goal.current = "end";
    setCurrent(null);
    setFollow(true);
    render();
    if (window.reachesEnd) source.stay();
    else void source.openEnd();
  };
  const go = (place: number): void => {
    const match = found.matches[place];
    if (match === undefined) return;
    setAt(place);
    void openAt(match.start, true);
  };
  /** Among the lines that the page holds, from the one that is marked on, and then from the first. */
  const nextError = (): void => {
    const lines = window.slice(0, window.count);
    const after = lines.findIndex((line, index) => index > (current ?? -1) && levelOf(line.plain) === "error");
    const place = after >= 0 ? after : lines.findIndex((line) => levelOf(line.plain) === "error");
    if (place < 0) return say("None of the lines shown is an error.");
    awaitsMatch.current = false;
    source.stay();
    show(place, true);
  };
  const mark = (place: number): void => {
    awaitsMatch.current = false;
    source.stay();
    goal.current = null;
    setFollow(false);
    setCurrent(place);
    wanted.current = window.slice(place, place + 1)[0]?.at ?? null;
  };
  useEffect(() => {
    // The address names a line. One that somebody has just marked is in view.
    if (line === null || !source.opened || wanted.current === line) return;
    wanted.current = line;
    void openAt(line, true);
  }, [line, source, source.opened]);
  useEffect(() => {
    if (current !== null) goal.current = current;
    render();
  }, [columns]);
  const isFirst = found.text !== "" && found.matches.length > 0;
  useEffect(() => {
    if (!isFirst) return;
    if (awaitsMatch.current) go(0);
    else setAt(0);
  }, [isFirst, found.text]);
  useEffect(() => {
    // The log of another attempt opens at its end, or at its first match.
    if (asked.current === attempt) return;
    asked.current = attempt;
    wanted.current = null;
    goal.current = null;
    awaitsMatch.current = find !== "";
    setFollow(true);
    setCurrent(null);
  }, [attempt]);

  return {
    box, top, follow, current, at, scrolled, openEnd, nextError, layout, mark,
    openBeginning: () => void openAt(0, false),
    step: (by) => go((at + by + found.matches.length) % Math.max(1, found.matches.length)),
    finding: () => {
      awaitsMatch.current = true;
    },
  };
}
