// How many characters of a log are beside each other, while its lines are wrapped.
import { type RefObject, useLayoutEffect, useRef, useState } from "react";

const OF_THE_PROBE = 10;
const LEAST = 20;
const EDGE_PX = 36; // the bar that scrolls, and the space after a line
const NUMBER_PX = 56;
const TIME_PX = 112;

export function useColumns(wrap: boolean, times: boolean): { columns: number | null; probe: RefObject<HTMLSpanElement | null>; watch: RefObject<HTMLElement | null> } {
  const probe = useRef<HTMLSpanElement>(null);
  const watch = useRef<HTMLElement>(null);
  const [columns, setColumns] = useState(80);
  useLayoutEffect(() => {
    const frame = watch.current;
    if (!wrap || frame === null) return;
    const measure = (): void => {
      const wide = (probe.current?.getBoundingClientRect().width ?? 0) / OF_THE_PROBE;
      const room = frame.clientWidth - EDGE_PX - NUMBER_PX - (times ? TIME_PX : 0);
      if (wide > 0) setColumns(Math.max(LEAST, Math.floor(room / wide)));
    };
    measure();
    const watching = new ResizeObserver(measure);
    watching.observe(frame);
    return () => watching.disconnect();
  }, [wrap, times]);
  return { columns: wrap ? columns : null, probe, watch };
}
