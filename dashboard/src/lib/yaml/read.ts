// YAML as people write definitions: mappings, lists, texts with and without quotes, blocks after | and >, and JSON. Plain
// words mean what they mean to the command line (cli/workflow_file.py). Anchors, tags and several documents are refused,
// with the line. Each value keeps the line on which it stands, so that a problem is shown where it was typed.
import { Scalars, wordOf, YamlError } from "./scalars";

export interface Read {
  value: unknown;
  /** The line (from 1) of each value by its path, such as steps[2].depends_on. */
  lines: Map<string, number>;
}

const DEEPEST = 200;
const KEY = /^(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|(?:[^\s#,[\]{}&*!|>'"%@`?:-]|[?:-](?=\S))(?:[^#]|(?<=\S)#)*?)\s*:(?=\s|$)/;

export function readYaml(text: string): Read {
  return new Reader(text).read();
}

class Reader extends Scalars {
  private readonly lines = new Map<string, number>();

  read(): Read {
    this.at = this.rows.findIndex((row) => /[\x85\u2028\u2029]/.test(row));
    if (this.at >= 0) throw this.wrong("it has an invisible end of a line; write it in double quotes, such as \\u2028");
    this.at = 0;
    let first = this.peek();
    if (first !== null && first.text.startsWith("%")) throw this.wrong("a directive is not read here");
    if (first !== null && /^---(\s|$)/.test(first.text)) {
      this.rows[this.at] = `   ${first.text.slice(3)}`;
      first = this.peek();
    }
    const value = first === null ? null : this.block(first.indent, -1, "", 0);
    const rest = this.peek();
    if (rest !== null && !/^\.\.\.\s*$/.test(rest.text)) throw this.wrong(/^---/.test(rest.text) ? "it is one document, so --- stands before it alone" : "this belongs to nothing before it; check the indentation");
    return { value, lines: this.lines };
  }

  private mark(path: string): void {
    if (!this.lines.has(path)) this.lines.set(path, this.at + 1);
  }

  /** What begins on this line. `parent`: the indentation of what it belongs to. */
  private block(indent: number, parent: number, path: string, depth: number): unknown {
    if (depth > DEEPEST) throw this.wrong(`it is nested too deeply: ${DEEPEST} levels`);
    const row = this.peek();
    if (row === null) return null;
    this.mark(path);
    if (isItem(row.text)) return this.list(indent, path, depth);
    if (keyOf(row.text) !== null) return this.mapping(indent, path, depth);
    return this.inline(indent, parent, path, depth);
  }

  private list(indent: number, path: string, depth: number): unknown[] {
    const found: unknown[] = [];
    for (let row = this.peek(); row !== null && row.indent === indent && isItem(row.text); row = this.peek()) {
      const place = `${path}[${found.length}]`;
      this.mark(place);
      const rest = row.text.slice(1);
      const text = rest.trimStart();
      if (text === "" || text.startsWith("#")) {
        this.at++;
        const next = this.peek();
        found.push(next !== null && next.indent > indent ? this.block(next.indent, indent, place, depth + 1) : null);
      } else {
        const column = indent + 1 + rest.length - text.length;
        this.rows[this.at] = " ".repeat(column) + text;
        found.push(this.block(column, indent, place, depth + 1));
      }
    }
    this.ends(indent);
    return found;
  }

  private mapping(indent: number, path: string, depth: number): Record<string, unknown> {
    const found = new Map<string, unknown>();
    for (let row = this.peek(); row !== null && row.indent === indent; row = this.peek()) {
      if (isItem(row.text)) break;
      const raw = keyOf(row.text);
      if (raw === null) throw this.wrong("a name and a colon are missing");
      const name = this.nameOf(raw.replace(/\s*:$/, ""));
      if (found.has(name)) throw this.wrong(`${name} occurs twice`);
      const place = path === "" ? name : `${path}.${name}`;
      this.mark(place);
      const rest = row.text.slice(raw.length);
      const text = rest.trimStart();
      if (text === "" || text.startsWith("#")) {
        this.at++;
        const next = this.peek();
        const below = next !== null && (next.indent > indent || (next.indent === indent && isItem(next.text)));
        found.set(name, below ? this.block(next.indent, indent, place, depth + 1) : null);
      } else {
        const column = indent + raw.length + rest.length - text.length;
        this.rows[this.at] = " ".repeat(column) + text;
        found.set(name, this.inline(column, indent, place, depth + 1));
      }
    }
    this.ends(indent);
    return Object.fromEntries(found);
  }

  /** What follows is less indented, or another thing of the parent. */
  private ends(indent: number): void {
    const next = this.peek();
    if (next !== null && next.indent > indent) throw this.wrong("check the indentation: it is deeper than what is above it");
  }

  /** A value that begins in its line, at this column. */
  private inline(column: number, parent: number, path: string, depth: number): unknown {
    const text = this.row().slice(column);
    const first = text[0] ?? "";
    if (first === "|" || first === ">") return this.folded(text, parent);
    if (first === "[" || first === "{") {
      this.column = column;
      const value = this.flow(path, depth);
      this.toEnd();
      return value;
    }
    if (first === '"' || first === "'") {
      this.column = column;
      const value = this.quoted();
      this.toEnd();
      return value;
    }
    const plain = this.plain(text);
    this.at++;
    const next = this.peek();
    if (next !== null && next.indent > parent && this.rows[this.at - 1]?.trim() !== "") throw this.wrong("a text of several lines stands in a block after | or >");
    return wordOf(plain, () => this.wrong("the number is too large; put it in quotes if it is a text", -1));
  }

  /** JSON, over several lines. */
  private flow(path: string, depth: number): unknown {
    if (depth > DEEPEST) throw this.wrong(`it is nested too deeply: ${DEEPEST} levels`);
    this.blank();
    this.mark(path);
    const first = this.char();
    if (first === "[") return this.flowList(path, depth);
    if (first === "{") return this.flowMapping(path, depth);
    if (first === '"' || first === "'") return this.quoted();
    return wordOf(this.flowPlain(), () => this.wrong("the number is too large; put it in quotes if it is a text"));
  }

  private flowList(path: string, depth: number): unknown[] {
    const found: unknown[] = [];
    this.column++;
    for (this.blank(); this.char() !== "]"; this.blank()) {
      found.push(this.flow(`${path}[${found.length}]`, depth + 1));
      this.blank();
      if (this.char() === ",") this.column++;
      else if (this.char() !== "]") throw this.wrong("a comma or ] is missing");
    }
    this.column++;
    return found;
  }

  private flowMapping(path: string, depth: number): Record<string, unknown> {
    const found = new Map<string, unknown>();
    this.column++;
    for (this.blank(); this.char() !== "}"; this.blank()) {
      const first = this.char();
      const name = first === '"' || first === "'" ? this.quoted() : this.flowPlain();
      if (found.has(name)) throw this.wrong(`${name} occurs twice`);
      const place = path === "" ? name : `${path}.${name}`;
      this.mark(place);
      this.blank();
      if (this.char() !== ":") throw this.wrong("a colon is missing after the name");
      this.column++;
      this.blank();
      found.set(name, this.char() === "," || this.char() === "}" ? null : this.flow(place, depth + 1));
      this.blank();
      if (this.char() === ",") this.column++;
      else if (this.char() !== "}") throw this.wrong("a comma or } is missing");
    }
    this.column++;
    return Object.fromEntries(found);
  }
}

function isItem(text: string): boolean {
  return text === "-" || /^-\s/.test(text);
}

/** The name with its colon, if the line begins with one. */
function keyOf(text: string): string | null {
  return KEY.exec(text)?.[0] ?? null;
}

export { YamlError };
