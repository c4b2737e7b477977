// Numbers, durations and sizes as text.
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const one = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const two = new Intl.NumberFormat("en", { maximumSignificantDigits: 2 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export function count(value: number): string {
  return whole.format(value);
}

export function short(value: number): string {
  return Math.abs(value) < 100_000 ? whole.format(value) : compact.format(value);
}

/** At most four characters below a million. */
export function tiny(value: number): string {
  return Math.abs(value) < 1000 ? whole.format(value) : compact.format(value);
}

/** A count that the server has capped or estimated says so. */
export function counted(value: number, estimated: boolean): string {
  return estimated ? `≈ ${short(value)}` : count(value);
}

export function rate(perSecond: number): string {
  if (perSecond === 0) return "0/s";
  if (perSecond >= 10) return `${whole.format(perSecond)}/s`;
  if (perSecond >= 0.1) return `${one.format(perSecond)}/s`;
  return `${two.format(perSecond * 60)}/min`;
}

export function percent(fraction: number): string {
  const value = fraction * 100;
  if (value === 100 || value === 0) return `${value}%`;
  return `${value > 99.9 ? "99.9" : value < 0.1 ? "0.1" : one.format(value)}%`;
}

/** 4 ms, 1.2 s, 3 min 20 s, 2 h 5 min, 3 d 4 h. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 0.0005) return "0 ms";
  if (seconds < 1) return `${whole.format(seconds * 1000)} ms`;
  if (seconds < 10) return `${one.format(seconds)} s`;
  if (seconds < 60) return `${whole.format(seconds)} s`;
  return joined(Math.round(seconds));
}

function joined(seconds: number): string {
  const units: [string, number][] = [["d", 86_400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => seconds >= size);
  const [unit, size] = units[first] ?? ["s", 1];
  const major = Math.floor(seconds / size);
  const next = units[first + 1];
  const minor = next === undefined ? 0 : Math.floor((seconds - major * size) / next[1]);
  return minor === 0 || next === undefined ? `${major} ${unit}` : `${major} ${unit} ${minor} ${next[0]}`;
}

export function bytes(size: number): string {
  if (size < 1000) return `${size} B`;
  if (size < 1e6) return `${one.format(size / 1e3)} kB`;
  if (size < 1e9) return `${one.format(size / 1e6)} MB`;
  return `${one.format(size / 1e9)} GB`;
}

export function plural(number: number, singular: string, many = `${singular}s`): string {
  return `${count(number)} ${number === 1 ? singular : many}`;
}

/** Ids of one minute begin alike: lists show the end. */
export function shortId(id: string): string {
  return /^[0-9a-f]{8}-[0-9a-f]{4}-/.test(id) ? `…${id.slice(-6)}` : id;
}

export function firstLine(text: string): string {
  const lines = text.trim().split("\n");
  return (lines[0] ?? "").slice(0, 200);
}

// Colours and other sequences for terminals. In the title of a group of failures their numbers are masked.
const SEQUENCES = /\u001b(?:\[[0-9;:?#]*[A-Za-z]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?)/g;

// What turns the direction of the text that follows would show another text than is there.
const DIRECTIONS = /[\u202a-\u202e\u2066-\u2069]/g;

/** Text of a program without the sequences that a terminal or a page would obey. */
export function plain(text: string): string {
  return text.replace(SEQUENCES, "").replace(DIRECTIONS, "\ufffd");
}

/** Of a Python traceback the last line is the error. */
export function errorLine(text: string): string {
  return plain(rawErrorLine(text)).slice(0, 300);
}

/** A part of the error as it is stored, to find the same error by. */
export function errorPart(text: string): string {
  const parts = rawErrorLine(text).split(SEQUENCES);
  return parts.reduce((best, part) => (part.length > best.length ? part : best), "").slice(0, 60).trim();
}

function rawErrorLine(text: string): string {
  const lines = text.trim().split("\n").filter((line) => line.trim() !== "");
  const found = text.startsWith("Traceback") ? lines.at(-1) : lines[0];
  return found ?? "";
}
