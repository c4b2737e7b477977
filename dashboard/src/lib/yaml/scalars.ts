// Texts, words and numbers of YAML, and the rows that they stand in.
import { parseJson } from "../json";

const WORDS: Record<string, unknown> = {
  "": null, "~": null, null: null, Null: null, NULL: null, true: true, True: true, TRUE: true, false: false, False: false, FALSE: false,
};
const NUMBER = /^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$/;
const WHOLE = /^([-+]?)0*([0-9]+)$/;
const ESCAPES: Record<string, string> = {
  "0": "\0", a: "\x07", b: "\b", t: "\t", n: "\n", v: "\v", f: "\f", r: "\r", e: "\x1b", " ": " ", '"': '"', "/": "/", "\\": "\\",
  N: "\x85", _: "\xa0", L: "\u2028", P: "\u2029",
};
const CODES: Record<string, number> = { x: 2, u: 4, U: 8 };

export class YamlError extends Error {
  readonly line: number;

  constructor(line: number, message: string) {
    super(message);
    this.line = line;
  }
}

/** Whether a word without quotes is read as a text. */
export function isText(word: string): boolean {
  return !Object.hasOwn(WORDS, word) && !NUMBER.test(word);
}

/** What a word without quotes means. */
export function wordOf(word: string, tooLarge: () => YamlError): unknown {
  if (Object.hasOwn(WORDS, word)) return WORDS[word];
  if (!NUMBER.test(word)) return word;
  if (!Number.isFinite(Number(word)) || word.length > 1000) throw tooLarge();
  const whole = WHOLE.exec(word);
  return whole ? parseJson(`${whole[1] === "-" ? "-" : ""}${whole[2]}`) : Number(word);
}

interface Row {
  indent: number;
  text: string;
}

export class Scalars {
  protected readonly rows: string[];
  protected at = 0;
  protected column = 0;

  constructor(text: string) {
    this.rows = text.replace(/^\ufeff/, "").split(/\r\n|\n|\r/);
  }

  protected wrong(what: string, rows = 0): YamlError {
    return new YamlError(Math.min(this.at + rows, this.rows.length - 1) + 1, what);
  }

  protected row(): string {
    return this.rows[this.at] ?? "";
  }

  /** The next row that says something, without its indentation. */
  protected peek(): Row | null {
    for (; this.at < this.rows.length; this.at++) {
      const row = this.row();
      const text = row.trimStart();
      if (text === "" || text.startsWith("#")) continue;
      const indent = row.length - text.length;
      if (row.slice(0, indent).includes("\t")) throw this.wrong("indent with spaces, not with tabs");
      return { indent, text: text.trimEnd() };
    }
    return null;
  }

  protected char(): string {
    return this.row()[this.column] ?? "";
  }

  /** Goes to the next thing, over ends of lines and comments. */
  protected blank(): void {
    for (;;) {
      const char = this.char();
      if (char === "" || (char === "#" && (this.column === 0 || /\s/.test(this.row()[this.column - 1] ?? "")))) {
        if (this.at + 1 >= this.rows.length) throw this.wrong("a bracket is not closed");
        this.at++;
        this.column = 0;
      } else if (char === " " || char === "\t") this.column++;
      else return;
    }
  }

  /** Nothing but a comment follows in the row. */
  protected toEnd(): void {
    const rest = this.row().slice(this.column);
    if (rest.trim() !== "" && !/^\s+#/.test(rest)) throw this.wrong(`${rest.trim()} stands after the end of the value`);
    this.at++;
  }

  protected nameOf(raw: string): string {
    if (raw.startsWith('"')) return this.unescaped(raw.slice(1, -1));
    return raw.startsWith("'") ? raw.slice(1, -1).replaceAll("''", "'") : raw;
  }

  /** A text in quotes, which ends on its line. */
  protected quoted(): string {
    const rest = this.row().slice(this.column);
    const found = /^(?:"((?:[^"\\]|\\.)*)"|'((?:[^']|'')*)')/.exec(rest);
    if (found === null) throw this.wrong("a text in quotes ends on its line; for several lines write a block after | or >");
    this.column += found[0].length;
    return found[1] === undefined ? (found[2] ?? "").replaceAll("''", "'") : this.unescaped(found[1]);
  }

  private unescaped(text: string): string {
    return text.replace(/\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)/g, (_, code: string) => {
      const digits = CODES[code[0] ?? ""];
      if (digits !== undefined && code.length === digits + 1) {
        const point = Number.parseInt(code.slice(1), 16);
        if (point <= 0x10ffff) return digits === 4 ? String.fromCharCode(point) : String.fromCodePoint(point);
      }
      const found = ESCAPES[code];
      if (found === undefined) throw this.wrong(`\\${code} means nothing; write \\\\ for a backslash`);
      return found;
    });
  }

  /** A text without quotes, to the end of its row. */
  protected plain(row: string): string {
    const text = row.replace(/\s+#.*$/, "").trimEnd();
    if (/^[,[\]{}#&*!|>'"%@`]/.test(text) || /^[-?:](\s|$)/.test(text)) throw this.wrong(`a text that begins with ${text[0]} stands in quotes`);
    if (/:(\s|$)/.test(text)) throw this.wrong("a text with a colon stands in quotes");
    return text;
  }

  protected flowPlain(): string {
    const found = /^(?:(?!\s#)(?!:(?:[\s,[\]{}]|$))[^,[\]{}])*/.exec(this.row().slice(this.column))?.[0] ?? "";
    const text = found.trimEnd();
    if (text === "" || /^[#&*!|>'"%@`]/.test(text) || /^[-?](\s|$)/.test(text)) throw this.wrong(text === "" ? "a value is missing" : `a text that begins with ${text[0]} stands in quotes`);
    this.column += found.length;
    return text;
  }

  /** The lines after | or >. */
  protected folded(head: string, parent: number): string {
    const found = /^([|>])(?:[-+]?[1-9]?|[1-9][-+])(?:\s+#.*)?\s*$/.exec(head);
    if (found === null) throw this.wrong("after | or > the text begins in the next line");
    const kind = found[1];
    const chomp = /[-+]/.exec(found[0].replace(/\s.*$/, ""))?.[0];
    const digit = /[1-9]/.exec(found[0].replace(/\s.*$/, ""))?.[0] ?? "";
    this.at++;
    const rows: string[] = [];
    let indent = digit === "" ? -1 : Math.max(parent, 0) + Number(digit);
    for (; this.at < this.rows.length; this.at++) {
      const row = this.row();
      const own = row.length - row.trimStart().length;
      const empty = row.trim() === "" && (indent === -1 || row.length <= indent);
      if (!empty) {
        if (row.slice(0, own).includes("\t") && (indent === -1 || own < indent)) throw this.wrong("indent with spaces, not with tabs");
        if (indent === -1) indent = own;
        if (own < indent || indent <= parent) break;
      }
      rows.push(empty ? "" : row.slice(indent));
    }
    let last = rows.length;
    while (last > 0 && rows[last - 1] === "") last--;
    const body = rows.slice(0, last);
    const text = kind === "|" ? body.join("\n") : joined(body);
    if (chomp === "-" || (body.length === 0 && chomp !== "+")) return text;
    return chomp === "+" ? text + "\n".repeat(rows.length - last + (body.length > 0 ? 1 : 0)) : `${text}\n`;
  }
}

/** Lines become one, apart from empty and indented ones. */
function joined(rows: string[]): string {
  let text = "";
  let breaks = 0;
  let before = ""; // the last line that is not empty
  rows.forEach((row, index) => {
    if (row === "") {
      breaks++;
      return;
    }
    const apart = /^\s/.test(row) || /^\s/.test(before);
    if (index > breaks || text !== "") text += breaks === 0 ? (apart ? "\n" : " ") : "\n".repeat(apart ? breaks + 1 : breaks);
    else text += "\n".repeat(breaks);
    text += row;
    before = row;
    breaks = 0;
  });
  return text;
}
