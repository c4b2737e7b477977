// A value as YAML that a person reads: short lists and mappings in one line, long texts as blocks.
import { isText } from "./scalars";

const SHORT = 60;
const PLAIN = /^[A-Za-z_/.][\w ./@+=-]*$/;

export function writeYaml(value: unknown): string {
  const text = written(value, "");
  return `${text.replace(/^\n/, "")}\n`;
}

/** In its line, or from the next line on. */
function written(value: unknown, indent: string): string {
  if (typeof value === "string" && value.includes("\n") && /^\S/.test(value) && isPrinted(value)) return blockOf(value, indent);
  if (isShort(value)) return ` ${inLine(value)}`;
  if (Array.isArray(value)) return value.map((one) => `\n${indent}-${itemOf(one, indent)}`).join("");
  return Object.entries(value as object).map(([name, one]) => `\n${indent}${textOf(name)}:${written(one, Array.isArray(one) && !isShort(one) ? indent : `${indent}  `)}`).join("");
}

function itemOf(value: unknown, indent: string): string {
  const text = written(value, `${indent}  `);
  // A mapping begins beside the dash.
  return text.startsWith("\n") ? ` ${text.slice(1 + indent.length + 2)}` : text;
}

function isShort(value: unknown): boolean {
  if (typeof value !== "object" || value === null || "toJSON" in value) return true;
  const members: unknown[] = Object.values(value);
  if (members.length === 0) return true;
  if (members.some((one) => typeof one === "object" && one !== null && !("toJSON" in one) && Object.keys(one).length > 0)) return false;
  return Array.isArray(value) && !members.some((one) => typeof one === "string" && one.includes("\n")) && inLine(value).length <= SHORT;
}

function inLine(value: unknown): string {
  if (typeof value === "string") return textOf(value);
  if (Array.isArray(value)) return `[${value.map(inLine).join(", ")}]`;
  return typeof value === "object" && value !== null && !("toJSON" in value) ? "{}" : JSON.stringify(value);
}

function textOf(text: string): string {
  return PLAIN.test(text) && !text.endsWith(" ") && !/^(\.\.\.|---)/.test(text) && isText(text) ? text : quotedOf(text);
}

/** As in JSON. YAML ends lines at more characters. */
function quotedOf(text: string): string {
  return JSON.stringify(text).replace(/[\x7f-\x9f\u2028\u2029\ufeff]/g, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function isPrinted(text: string): boolean {
  return !/[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]/.test(text);
}

function blockOf(text: string, indent: string): string {
  const body = text.replace(/\n+$/, "");
  const ends = text.length - body.length;
  const chomp = ends === 0 ? "-" : ends === 1 ? "" : "+";
  const rows = body.split("\n").map((row) => (row === "" ? "" : (indent || "  ") + row));
  return ` |${chomp}\n${rows.join("\n")}${ends > 1 ? "\n".repeat(ends - 1) : ""}`;
}
