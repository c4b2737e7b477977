import { useEffect, useRef, useState } from "react";
import type { RunView } from "../../api/schema";
import { type Line, toLine } from "../../lib/ansi";
import { followLog } from "./followLog";

// Older lines are dropped, so that a run that prints for days does not fill the browser.
const MOST_LINES = 200_000;

export interface Output {
  lines: Line[];
  dropped: number;
  ended: boolean;
  error: unknown;
  attempt: number;
}

/** The output of one attempt, or of the run from its current attempt on; complete lines and the unfinished last one. */
export function useLog(run: RunView, attempt: number): Output {
  const [, render] = useState(0);
  const log = useRef<{ lines: Line[]; tail: string; dropped: number; ended: boolean; error: unknown; attempt: number }>(empty());
  useEffect(() => {
    const stop = new AbortController();
    const state = empty();
    log.current = state;
    let frame = 0;
    const show = (): void => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        render((n) => n + 1);
      });
    };
    const events = {
      output: (number: number, text: string): void => {
        state.attempt = number;
        const pieces = (state.tail + text).split("\n");
        state.tail = pieces.pop() ?? "";
        for (const piece of pieces) state.lines.push(toLine(piece));
        if (state.lines.length > MOST_LINES) state.dropped += state.lines.splice(0, state.lines.length - MOST_LINES).length;
        show();
      },
      attempt: (number: number): void => {
        if (state.attempt !== 0 && attempt === 0) state.lines.push(toLine(`── attempt ${number} ──`));
        state.attempt = number;
        show();
      },
      end: (): void => {
        state.ended = true;
        show();
      },
    };
    const follow = async (): Promise<void> => {
      try {
        await followLog(run.run_id, attempt, events, stop.signal);
        state.ended = true;
      } catch (error) {
        if (!stop.signal.aborted) state.error = error;
      }
      show();
    };
    void follow();
    return () => {
      stop.abort();
      cancelAnimationFrame(frame);
    };
  }, [run.run_id, attempt]);
  const { lines, tail, dropped, ended, error, attempt: number } = log.current;
  return { lines: tail === "" ? lines : [...lines, toLine(tail)], dropped, ended, error, attempt: number };
}

function empty() {
  return { lines: [] as Line[], tail: "", dropped: 0, ended: false, error: null as unknown, attempt: 0 };
}
