import { useEffect, useRef, useState } from "react";
import type { RunView } from "../../api/schema";
import { LogSource } from "./logSource";

/** The log of an attempt, or of the run from its newest attempt on. It opens at its end. */
export function useLog(run: RunView, attempt: number): LogSource {
  const [, render] = useState(0);
  const source = useRef<LogSource | null>(null);
  const frame = useRef(0);
  const show = (): void => {
    frame.current ||= requestAnimationFrame(() => {
      frame.current = 0;
      render((n) => n + 1);
    });
  };
  source.current ??= new LogSource(run.run_id, attempt, show);
  useEffect(() => {
    const made = new LogSource(run.run_id, attempt, show);
    source.current = made;
    void made.openEnd();
    return () => {
      made.close();
      cancelAnimationFrame(frame.current);
      frame.current = 0;
    };
  }, [run.run_id, attempt]);
  return source.current;
}
