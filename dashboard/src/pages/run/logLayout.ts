// Where each line of a log stands, in pixels from the top: all of one height, or wrapped at the width of the window.
import type { Line } from "../../lib/ansi";
import type { LogWindow } from "./logWindow";

export const HEIGHT = 20;
const TAB = 8;
const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\ud800-\udfff]/;

export interface LogLayout {
  height: number;
  top: (place: number) => number;
  /** The line at this height. */
  at: (pixels: number) => number;
}

/** `columns`: how many characters are beside each other; null: lines are not wrapped. */
export function layoutOf(window: LogWindow, columns: number | null): LogLayout {
  const { count } = window;
  if (columns === null) return { height: count * HEIGHT, top: (place) => place * HEIGHT, at: (pixels) => Math.floor(pixels / HEIGHT) };
  const tops = new Float64Array(count + 1);
  window.slice(0, count).forEach((line, place) => {
    tops[place + 1] = (tops[place] ?? 0) + rowsOf(line, columns) * HEIGHT;
  });
  return { height: tops[count] ?? 0, top: (place) => tops[Math.min(place, count)] ?? 0, at: (pixels) => placeAt(tops, pixels) };
}

const known = new WeakMap<Line, number>();

function rowsOf(line: Line, columns: number): number {
  let cells = known.get(line);
  if (cells === undefined) {
    cells = cellsOf(line.plain);
    known.set(line, cells);
  }
  // A wide character that does not fit leaves a cell empty.
  return Math.max(1, Math.ceil(Math.abs(cells) / (cells < 0 ? columns - 1 : columns)));
}

/** How many cells the text takes; less than 0 if some of its characters take two. */
function cellsOf(text: string): number {
  const tabs = text.split("\t").length - 1;
  if (!WIDE.test(text)) return text.length + tabs * (TAB - 1);
  let cells = tabs * (TAB - 1);
  for (const char of text) cells += WIDE.test(char) ? 2 : 1;
  return -cells;
}

function placeAt(tops: Float64Array, pixels: number): number {
  let low = 0;
  let high = tops.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((tops[middle] ?? 0) <= pixels) low = middle;
    else high = middle - 1;
  }
  return low;
}
