// The parts of the OpenAPI document that the page shows.
export interface Schema {
  $ref?: string;
  type?: string;
  format?: string;
  enum?: unknown[];
  items?: Schema;
  prefixItems?: Schema[];
  anyOf?: Schema[];
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: Schema | boolean;
  description?: string;
  default?: unknown;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  pattern?: string;
}

export interface Parameter {
  name: string;
  in: "path" | "query" | "header";
  required: boolean;
  description: string;
  schema: Schema;
  example?: unknown;
}

interface Content {
  schema: Schema;
  example?: unknown;
  examples?: Record<string, { summary: string; value: unknown }>;
}

export interface Answer {
  description: string;
  content?: Record<string, Content>;
  headers?: Record<string, unknown>;
}

interface Described {
  operationId: string;
  tags: string[];
  summary: string;
  description: string;
  parameters?: Parameter[];
  requestBody?: { required: boolean; content: Record<string, Content> };
  responses: Record<string, Answer>;
  security?: unknown[];
}

export interface Document {
  info: { title: string; version: string; description: string };
  tags: { name: string; description: string }[];
  paths: Record<string, Record<string, Described>>;
  components: { schemas: Record<string, Schema> };
}

export interface Operation extends Described {
  method: string;
  path: string;
}

export function operationsOf(document: Document): Operation[] {
  return Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ ...operation, method: method.toUpperCase(), path })),
  );
}

/** Whether each word of the search is somewhere in the operation. */
export function matches(operation: Operation, text: string): boolean {
  const { method, path, operationId, summary, description, parameters = [] } = operation;
  const names = parameters.map((parameter) => parameter.name);
  const all = [method, path, operationId, summary, description, ...operation.tags, ...names].join(" ").toLowerCase();
  return text.toLowerCase().split(/\s+/).every((word) => all.includes(word));
}

export function nameOf(schema: Schema): string | null {
  return schema.$ref?.split("/").at(-1) ?? null;
}

/** The schema that a reference names. */
export function resolved(document: Document, schema: Schema): Schema {
  const name = nameOf(schema);
  return name === null ? schema : (document.components.schemas[name] ?? {});
}

/** What a value may be, in a few words. */
export function typeWords(document: Document, schema: Schema): string {
  const name = nameOf(schema);
  const target = resolved(document, schema);
  if (target.enum) return target.enum.map(String).join(" | ");
  if (name !== null) return name;
  if (schema.anyOf) return schema.anyOf.map((one) => typeWords(document, one)).join(" or ");
  if (schema.type === "array") return schema.items ? `list of ${typeWords(document, schema.items)}` : "list";
  if (schema.type === "object" && typeof schema.additionalProperties === "object")
    return `object of ${typeWords(document, schema.additionalProperties)}`;
  return [schema.type ?? "any JSON", schema.format ? `(${schema.format})` : "", boundsOf(schema)].filter(Boolean).join(" ");
}

function boundsOf(schema: Schema): string {
  const words: string[] = [];
  if (schema.minimum !== undefined) words.push(`≥ ${schema.minimum}`);
  if (schema.maximum !== undefined) words.push(`≤ ${schema.maximum}`);
  if (schema.maxLength !== undefined) words.push(`up to ${schema.maxLength} characters`);
  return words.join(", ");
}

/** The structs that a schema is made of, as far as a reader would open them next. */
export function structsIn(document: Document, schema: Schema): string[] {
  const name = nameOf(schema);
  if (name !== null) return document.components.schemas[name]?.properties ? [name] : [];
  const parts = [...(schema.anyOf ?? []), ...(schema.prefixItems ?? []), ...(schema.items ? [schema.items] : [])];
  if (typeof schema.additionalProperties === "object") parts.push(schema.additionalProperties);
  return [...new Set(parts.flatMap((part) => structsIn(document, part)))];
}

export function bodyOf(operation: Operation): Content | null {
  return Object.values(operation.requestBody?.content ?? {})[0] ?? null;
}

/** The address of a request with these values of its parameters. */
export function addressOf(operation: Operation, values: Record<string, string>): string {
  const { parameters = [] } = operation;
  let path = operation.path;
  const query = new URLSearchParams();
  for (const { name, in: place, example } of parameters) {
    const value = values[name] ?? "";
    if (place === "path") path = path.replace(`{${name}}`, encodeURIComponent(value || String(example ?? name)));
    else if (place === "query" && value !== "") query.append(name, value);
  }
  const text = query.toString();
  return text === "" ? path : `${path}?${text}`;
}

/** The request as a command. The token comes from the environment, so that it is in no history. */
export function curlOf(operation: Operation, values: Record<string, string>, body: string, origin: string): string {
  const quote = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;
  const lines = [`curl${operation.method === "GET" ? "" : ` -X ${operation.method}`} ${quote(origin + addressOf(operation, values))}`];
  if (operation.security?.length !== 0) lines.push(`-H "Authorization: Bearer $TOKEN"`);
  for (const { name, in: place } of operation.parameters ?? [])
    if (place === "header" && values[name]) lines.push(`-H ${quote(`${name}: ${values[name]}`)}`);
  if (body.trim() !== "") lines.push(`-H 'Content-Type: application/json'`, `-d ${quote(body.trim())}`);
  return lines.join(" \\\n  ");
}
