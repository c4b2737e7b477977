// The part of a log that the page holds: consecutive blocks of lines, and an incomplete last line.
import type { LogRange } from "../../api/schema";
import { type Line, toLine } from "../../lib/ansi";

const MOST_LINES = 20_000;
const BLOCK_LINES = 1000;

interface Block {
  start: number;
  end: number;
  lines: Line[];
}

export class LogWindow {
  attempt = 0;
  bytes = 0;
  ended = false;
  truncated = false;
  /** The number of the first line, if it is known. */
  first: number | null = 1;
  /** There may be more output than `bytes` says. */
  detached = false;
  private blocks: Block[] = [];
  private tail = "";

  get start(): number {
    return this.blocks[0]?.start ?? 0;
  }

  get end(): number {
    return this.blocks.at(-1)?.end ?? 0;
  }

  get reachesEnd(): boolean {
    return !this.detached && this.end >= this.bytes;
  }

  /** How many lines it holds. */
  get count(): number {
    return this.blocks.reduce((sum, block) => sum + block.lines.length, 0) + (this.tail === "" ? 0 : 1);
  }

  slice(from: number, to: number): Line[] {
    const found: Line[] = [];
    let before = 0;
    for (const { lines } of this.blocks) {
      if (before + lines.length > from && before < to) found.push(...lines.slice(Math.max(0, from - before), to - before));
      before += lines.length;
    }
    if (this.tail !== "" && before >= from && before < to) found.push(toLine(this.tail, this.end - bytesOf(this.tail)));
    return found;
  }

  open(range: LogRange): void {
    this.blocks = [];
    this.tail = "";
    this.attempt = range.attempt;
    this.first = range.line;
    this.detached = false;
    this.append(range);
  }

  begin(attempt: number): void {
    this.open({ attempt, start: 0, end: 0, bytes: 0, text: "", line: 1, truncated: false, ended: false });
  }

  /** Lines before the first one. Returns how many. */
  prepend(range: LogRange): number {
    const block = { start: range.start, end: range.end, lines: linesOf(range.text, range.start) };
    this.blocks.unshift(block);
    if (this.first !== null) this.first -= block.lines.length;
    while (this.count > MOST_LINES && this.blocks.length > 1) {
      this.blocks.pop();
      this.tail = "";
    }
    return block.lines.length;
  }

  /** Lines after the last one. A line that was incomplete is replaced. Returns how many lines were dropped at the top. */
  append(range: LogRange): number {
    const last = this.blocks.at(-1);
    if (last !== undefined) last.end = range.start;
    const lines = linesOf(range.text, range.start);
    this.tail = "";
    if (range.end >= range.bytes && !range.ended && range.text !== "" && !range.text.endsWith("\n")) {
      lines.pop();
      this.tail = range.text.slice(range.text.lastIndexOf("\n") + 1);
    }
    this.blocks.push({ start: range.start, end: range.end, lines });
    this.bytes = range.bytes;
    this.ended = range.ended;
    this.truncated = range.truncated;
    this.detached = false;
    return this.dropOldest();
  }

  /** Output as it arrives, up to the byte `end`. */
  extend(text: string, end: number): void {
    const pieces = (this.tail + text).split("\n");
    this.tail = pieces.pop() ?? "";
    let last = this.blocks.at(-1);
    if (last === undefined || last.lines.length >= BLOCK_LINES) {
      // The incomplete line belongs to the new block.
      last = { start: last?.end ?? 0, end, lines: [] };
      this.blocks.push(last);
    }
    let at = end - bytesOf(this.tail) - pieces.reduce((sum, piece) => sum + bytesOf(piece) + 1, 0);
    for (const piece of pieces) {
      last.lines.push(toLine(piece, at));
      at += bytesOf(piece) + 1;
    }
    last.end = end;
    this.bytes = Math.max(this.bytes, end);
  }

  get isFull(): boolean {
    return this.count > MOST_LINES;
  }

  dropOldest(): number {
    let dropped = 0;
    while (this.count > MOST_LINES && this.blocks.length > 1) dropped += this.blocks.shift()?.lines.length ?? 0;
    if (this.first !== null) this.first += dropped;
    return dropped;
  }
}

function linesOf(text: string, start: number): Line[] {
  if (text === "") return [];
  const pieces = text.split("\n");
  if (pieces.at(-1) === "") pieces.pop();
  let at = start;
  return pieces.map((piece) => {
    const line = toLine(piece, at);
    at += bytesOf(piece) + 1;
    return line;
  });
}

const encoder = new TextEncoder();

/** Output is UTF-8. Where it is not, the next block begins at the right place again. */
function bytesOf(text: string): number {
  return /^[\u0000-\u007f]*$/.test(text) ? text.length : encoder.encode(text).length;
}
