// What a dialog is about to do, as text to take along: a command, a call of curl, a line of Python.
import { useState } from "react";
import { word } from "../lib/shellWord";
import styles from "./AsCommand.module.css";
import { Copy } from "./Copy";
import { Choice } from "./Tabs";

export interface Same {
  /** Without "mainspring": words of the command line, which are quoted here. Without it no command does the same. */
  command?: readonly string[];
  method: "POST" | "PUT" | "PATCH" | "DELETE";
  path: string;
  body?: unknown;
  /** The call of a client: its name and its arguments. Without it the client has no such call. */
  python?: readonly [string, ...unknown[]];
  /** Arguments of the call by name. */
  named?: Readonly<Record<string, unknown>>;
}

type Form = "command" | "curl" | "python";
const NAMES: [Form, string][] = [["command", "Command"], ["curl", "curl"], ["python", "Python"]];
/** Stands where a value would be that nobody should see on a screen or in the history of a shell. */
export const HIDDEN = "***";

export function AsCommand({ same }: { same: Same }) {
  const offered = NAMES.filter(([one]) => one === "curl" || same[one] !== undefined);
  const [form, setForm] = useState<Form>(offered[0]?.[0] ?? "curl");
  const text = FORMS[form](same);
  return (
    <details className={styles.same}>
      <summary>As a command</summary>
      <Choice<Form> label="Written as" value={form} options={offered} onChange={setForm} />
      <div className={styles.line}>
        <pre>
          <code>{text}</code>
        </pre>
        <Copy text={text} label="Copy it" />
      </div>
    </details>
  );
}

const FORMS: Record<Form, (same: Same) => string> = {
  command: ({ command = [] }) => ["mainspring", ...command.map(word)].join(" "),
  curl: ({ method, path, body }) =>
    [
      `curl -X ${method} ${word(location.origin + path)}`, `-H "Authorization: Bearer $TOKEN"`,
      ...(body === undefined ? [] : [`-H 'Content-Type: application/json'`, `-d ${word(JSON.stringify(body))}`]),
    ].join(" \\\n  "),
  python: ({ python: [name, ...values] = [""], named = {} }) => `from mainspring import Client\n\nwith Client() as client:\n    client.${name}(${[...values.map(literal), ...Object.entries(named).map(([key, value]) => `${key}=${literal(value)}`)].join(", ")})`,
};

/** A value of JSON as Python writes it. */
function literal(value: unknown): string {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value as object).map(([name, one]) => `${literal(name)}: ${literal(one)}`).join(", ")}}`;
  return JSON.stringify(value);
}
