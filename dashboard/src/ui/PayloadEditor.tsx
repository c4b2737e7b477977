// A payload, as a form made from the JSON Schema of its task, or as JSON. Both edit the same text.
import { useState } from "react";
import { LongNumber, parseJson } from "../lib/json";
import { Field, Select, TextArea } from "./Field";
import styles from "./PayloadEditor.module.css";
import { Choice } from "./Tabs";

interface Property {
  type?: string | string[];
  enum?: unknown[];
  description?: string;
  default?: unknown;
  title?: string;
}

export interface Schema {
  properties?: Record<string, Property>;
  required?: string[];
}

interface Props {
  schema: Schema | null;
  text: string;
  onChange: (text: string) => void;
  problems?: Record<string, string>;
  /** What the value is called. */
  name?: string;
}

/** The value of the text, or undefined if it is no JSON. */
export function parsed(text: string): { value: unknown } | null {
  if (text.trim() === "") return { value: undefined };
  try {
    return { value: parseJson(text) };
  } catch {
    return null;
  }
}

export function PayloadEditor({ schema, text, onChange, problems = {}, name: called = "payload" }: Props) {
  const properties = Object.entries(schema?.properties ?? {});
  const value = parsed(text);
  const object = value !== null && isObject(value.value ?? {}) ? ((value.value ?? {}) as Record<string, unknown>) : null;
  const [form, setForm] = useState(true);
  const formed = properties.length > 0 && object !== null && form;
  const set = (name: string, next: unknown): void => {
    const changed = { ...object };
    if (next === undefined) delete changed[name];
    else changed[name] = next;
    onChange(Object.keys(changed).length === 0 ? "" : JSON.stringify(changed, null, 2));
  };
  return (
    <div className={styles.editor}>
      {properties.length > 0 ? (
        <Choice
          label={`Edit the ${called} as`} value={formed ? "form" : "json"} options={[["form", "Form"], ["json", "JSON"]]}
          onChange={(kind) => setForm(kind === "form")}
        />
      ) : null}
      {formed && object !== null ? (
        <div className={styles.form}>
          {properties.map(([name, property]) => (
            <PropertyField
              key={name} name={name} property={property} value={object[name]}
              required={schema?.required?.includes(name) ?? false} problem={problems[`payload.${name}`]}
              onChange={(next) => set(name, next)}
            />
          ))}
        </div>
      ) : (
        <TextArea
          label={`${called.charAt(0).toUpperCase()}${called.slice(1)} (JSON)`} value={text} onChange={(event) => onChange(event.target.value)} placeholder="{}"
          problem={value === null ? "This is no valid JSON yet." : problems["payload"]}
        />
      )}
    </div>
  );
}

function PropertyField({ name, property, value, required, problem, onChange }: {
  name: string; property: Property; value: unknown; required: boolean; problem: string | undefined;
  onChange: (value: unknown) => void;
}) {
  const types = [property.type ?? "string"].flat();
  const label = required ? `${name} *` : name;
  const help = property.description ?? (property.default === undefined ? undefined : `default ${JSON.stringify(property.default)}`);
  const shown = value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value);
  if (property.enum !== undefined)
    return (
      <Select
        label={label} help={help} problem={problem} value={value === undefined ? "" : JSON.stringify(value)}
        options={[["", required ? "choose" : "not given"], ...property.enum.map((one): [string, string] => [JSON.stringify(one), String(one)])]}
        onChange={(event) => onChange(event.target.value === "" ? undefined : parseJson(event.target.value))}
      />
    );
  if (types.includes("boolean"))
    return (
      <Select
        label={label} help={help} problem={problem} value={shown} options={[["", "not given"], ["true", "true"], ["false", "false"]]}
        onChange={(event) => onChange(event.target.value === "" ? undefined : event.target.value === "true")}
      />
    );
  const numeric = types.includes("integer") || types.includes("number");
  const plain = types.includes("string");
  const read = (text: string): unknown => {
    if (text === "") return undefined;
    if (plain) return text;
    return parsed(text)?.value ?? text;
  };
  return (
    <Field
      label={label} help={help ?? (numeric || plain ? undefined : "as JSON")} problem={problem} value={shown}
      inputMode={numeric ? "decimal" : "text"} onChange={(event) => onChange(read(event.target.value))}
    />
  );
}

function isObject(value: unknown): boolean {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof LongNumber);
}
