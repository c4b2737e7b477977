// Output of programs as lines of styled text. Colours become classes; every other control becomes a visible symbol.
import Anser from "anser";
import { visible } from "./visible/visible";

export interface Span {
  text: string;
  color: string | null;
  bold: boolean;
}

export interface Line {
  spans: Span[];
  plain: string;
}

const LONGEST = 4000;
// What a terminal would obey and a page must not: titles, links, cursor movements; direction overrides.
const SEQUENCES = /\u001b(?:\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\[[0-9;?]*[A-Za-ln-z]|[()][0-9A-B]|[=>78cDEHMNOZ])/g;
const CONTROLS = /[\u0000-\u0008\u000b-\u001a\u001c-\u001f\u007f]/g;
const DIRECTIONS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

export function toLine(raw: string): Line {
  const kept = raw.slice(raw.lastIndexOf("\r", raw.length - 2) + 1).replace(/\r$/, "");
  const cut = kept.length > LONGEST ? `${kept.slice(0, LONGEST)} … ${kept.length - LONGEST} more characters` : kept;
  const safe = cut.replace(SEQUENCES, "").replace(CONTROLS, symbol).replace(DIRECTIONS, visible);
  if (!safe.includes("\u001b")) return { spans: [{ text: safe, color: null, bold: false }], plain: safe };
  const spans = Anser.ansiToJson(safe, { use_classes: true, json: true, remove_empty: true }).map((part) => ({
    text: part.content.replaceAll("\u001b", "␛"),
    color: part.fg?.startsWith("ansi-") && !part.fg.includes("palette") && !part.fg.includes("truecolor") ? part.fg : null,
    bold: part.decorations.includes("bold"),
  }));
  return { spans, plain: spans.map((span) => span.text).join("") };
}

function symbol(char: string): string {
  const code = char.charCodeAt(0);
  return code === 127 ? "␡" : String.fromCharCode(0x2400 + code);
}
