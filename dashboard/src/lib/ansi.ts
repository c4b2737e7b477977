// Output of programs as lines of styled text. Every control that is no style becomes a visible symbol.
import Anser from "anser";
import { visible } from "./visible/visible";

export interface Span {
  text: string;
  /** A class for one of the 16 colours of the theme, or an exact colour such as "rgb(255, 128, 0)". */
  color: string | null;
  ground: string | null;
  styles: readonly Style[];
}

export type Style = "bold" | "dim" | "italic" | "underline" | "strikethrough" | "reverse";

export interface Line {
  spans: Span[];
  plain: string;
  /** The byte of the output at which it begins. */
  at: number;
}

const LONGEST = 4000;
const STYLES: readonly Style[] = ["bold", "dim", "italic", "underline", "strikethrough", "reverse"];
// What a terminal would obey and a page must not: titles, links, cursor movements; direction overrides.
const SEQUENCES = /\u001b(?:\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\[[0-9;?]*[A-Za-ln-z]|[()][0-9A-B]|[=>78cDEHMNOZ])/g;
const CONTROLS = /[\u0000-\u0008\u000b-\u001a\u001c-\u001f\u007f]/g;
const DIRECTIONS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
const LEVELS = [0, 95, 135, 175, 215, 255]; // of red, green and blue in the cube of 216 colours

export function toLine(raw: string, at = 0): Line {
  const kept = raw.slice(raw.lastIndexOf("\r", raw.length - 2) + 1).replace(/\r$/, "");
  const cut = kept.length > LONGEST ? `${kept.slice(0, LONGEST)} … ${kept.length - LONGEST} more characters` : kept;
  const safe = cut.replace(SEQUENCES, "").replace(CONTROLS, symbol).replace(DIRECTIONS, visible);
  if (!safe.includes("\u001b")) return { spans: [{ text: safe, color: null, ground: null, styles: [] }], plain: safe, at };
  const spans = Anser.ansiToJson(safe, { use_classes: true, json: true, remove_empty: true }).map((part) => ({
    text: part.content.replaceAll("\u001b", "␛"),
    color: colorOf(part.fg, part.fg_truecolor),
    ground: colorOf(part.bg, part.bg_truecolor),
    styles: STYLES.filter((style) => part.decorations.includes(style)),
  }));
  return { spans, plain: spans.map((span) => span.text).join(""), at };
}

/** ansi-red; ansi-palette-208 and ansi-truecolor as what they mean. */
function colorOf(name: string | null, exact: string | null): string | null {
  if (!name) return null;
  if (name === "ansi-truecolor") return exact ? `rgb(${exact})` : null;
  const number = Number(name.match(/^ansi-palette-(\d+)$/)?.[1] ?? NaN);
  if (Number.isNaN(number)) return name;
  if (number < 16) return `ansi-${number > 7 ? "bright-" : ""}${NAMES[number % 8]}`;
  if (number > 231) return `rgb(${Array(3).fill(8 + 10 * (number - 232)).join(", ")})`;
  const place = number - 16;
  return `rgb(${[Math.floor(place / 36), Math.floor(place / 6) % 6, place % 6].map((level) => LEVELS[level]).join(", ")})`;
}

function symbol(char: string): string {
  const code = char.charCodeAt(0);
  return code === 127 ? "␡" : String.fromCharCode(0x2400 + code);
}
