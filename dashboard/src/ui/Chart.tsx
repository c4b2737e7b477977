// A time series on a canvas. One cursor runs over all charts of a page; the table below says the same in words.
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { isDark, usePreferences } from "../lib/preferences";
import { absolute, clockTime, day, zoneOf } from "../lib/time";
import styles from "./Chart.module.css";

export interface Line {
  label: string;
  values: (number | null)[];
  /** A token: success, failed, held, accent, muted. */
  color: string;
  area?: boolean;
  dashed?: boolean;
  /** Values that are far apart: a dot each, and lines over the gaps. */
  sparse?: boolean;
}

interface Props {
  title: string;
  at: string[];
  lines: Line[];
  format: (value: number) => string;
  sync: string;
  /** The values are counts: no tick between two numbers. */
  whole?: boolean;
  /** A part of the time was chosen with the pointer. */
  onRange?: ((since: Date, until: Date) => void) | undefined;
}

const TALL = 150;
const LEAST_DRAG_PX = 8;
const WHOLE = Array.from({ length: 10 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();

export function Chart({ title, at, lines, format, sync, whole = false, onRange }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const newest = useRef(onRange);
  newest.current = onRange;
  const { zone, theme } = usePreferences();
  const times = at.map((moment) => Date.parse(moment) / 1000);
  const data = [times, ...lines.map((line) => line.values)] as uPlot.AlignedData;
  const shape = JSON.stringify([lines.map((line) => [line.label, line.color]), zone, theme, isDark()]);
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const made = new uPlot(optionsOf(element, times, lines, format, sync, zoneOf(zone), whole, (since, until) => newest.current?.(since, until)), data, element);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: TALL }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
    // The chart is made anew when its shape changes; new data goes into the chart that is there.
  }, [shape]);
  useEffect(() => plot.current?.setData(data), [at, lines]);
  return (
    <figure className={styles.chart}>
      <figcaption>{title}</figcaption>
      <div ref={box} className={styles.box} aria-hidden="true" />
      {lines.every((line) => line.values.every((value) => value === null)) ? <p className={styles.nothing}>No data in this time</p> : null}
      <table className="sr">
        <caption>{title}</caption>
        <tbody>
          {lines.map((line) => (
            <tr key={line.label}>
              <th scope="row">{line.label}</th>
              <td>latest {textOf(latestOf(line.values), format)}</td>
              <td>highest {textOf(Math.max(...line.values.map((value) => value ?? 0)), format)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </figure>
  );
}

function textOf(value: number | null | undefined, format: (value: number) => string): string {
  return value === null || value === undefined ? "–" : format(value);
}

/** The last step has often begun only now, and has no value yet. */
function latestOf(values: ArrayLike<number | null | undefined>): number | null {
  return Array.from(values).findLast((value) => value !== null && value !== undefined) ?? null;
}

/** uPlot keeps each colour as a function. */
function colorOf(plot: uPlot, index: number): string {
  const stroke = plot.series[index]?.stroke;
  return String(typeof stroke === "function" ? stroke(plot, index) : stroke);
}

function isLong(times: number[]): boolean {
  return (times.at(-1) ?? 0) - (times[0] ?? 0) > 172_800;
}

/** The time of day; over more than two days, the day. */
function timeLabel(seconds: number, times: number[], zone: string): string {
  return isLong(times) ? day(seconds * 1000, zone) : clockTime(seconds * 1000, zone).slice(0, 5);
}

function optionsOf(
  element: HTMLElement, times: number[], lines: Line[], format: (value: number) => string, sync: string, zone: string,
  whole: boolean, chosen: (since: Date, until: Date) => void,
): uPlot.Options {
  const css = getComputedStyle(document.documentElement);
  const token = (name: string): string => css.getPropertyValue(`--${name}`).trim();
  const axis: uPlot.Axis = {
    stroke: token("muted"), font: "11px system-ui, sans-serif", grid: { stroke: token("line"), width: 1 },
    ticks: { show: false },
  };
  return {
    width: element.clientWidth,
    height: TALL,
    tzDate: (ts) => uPlot.tzDate(new Date(ts * 1000), zone),
    cursor: { sync: { key: sync }, drag: { x: true, y: false, setScale: false } },
    hooks: {
      setSelect: [
        (made) => {
          const { left, width } = made.select;
          if (width < LEAST_DRAG_PX) return;
          made.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          chosen(new Date(made.posToVal(left, "x") * 1000), new Date(made.posToVal(left + width, "x") * 1000));
        },
      ],
    },
    legend: { show: true, live: true, markers: { width: 0, fill: (plot, index) => colorOf(plot, index) } },
    scales: { y: { range: (_, __, high) => [0, Math.max(1e-9, high || 1) * 1.1] } },
    axes: [
      { ...axis, values: (_, ticks) => ticks.map((tick) => timeLabel(tick, times, zone)), grid: { show: false }, size: 28, space: isLong(times) ? 96 : 64 },
      { ...axis, size: (_, labels) => Math.max(36, 14 + 6.2 * Math.max(0, ...(labels ?? []).map((label) => label.length))), ...(whole ? { incrs: WHOLE } : {}), values: (_, ticks) => ticks.map((tick) => format(tick)) },
    ],
    series: [
      { label: zone, value: (_, seconds) => (seconds === null ? "latest" : absolute(seconds * 1000, zone)) },
      ...lines.map((line): uPlot.Series => ({
        label: line.label,
        stroke: token(line.color),
        width: 1.5,
        ...(line.area ? { fill: `color-mix(in srgb, ${token(line.color)} 18%, transparent)` } : {}),
        ...(line.dashed ? { dash: [4, 3] } : {}),
        points: { show: line.sparse ?? false, size: 5 },
        spanGaps: line.sparse ?? false,
        value: (plot, value, index, at) => textOf(at === null ? latestOf(plot.data[index] ?? []) : value, format),
      })),
    ],
  };
}
