// Calls to the server. Every refusal is a problem document, thrown as `Refused`.
import { parseJson } from "../lib/json";
import { heard, unheard } from "../live/beat";
import type { Problem } from "./schema";

export class Refused extends Error {
  readonly problem: Problem;
  readonly retryAfter: number | null;

  constructor(problem: Problem, retryAfter: number | null = null) {
    super(problem.detail);
    this.problem = problem;
    this.retryAfter = retryAfter;
  }

  get status(): number {
    return this.problem.status;
  }
}

export type Query = Record<string, string | number | boolean | readonly string[] | null | undefined>;

export interface Answer<T> {
  data: T;
  etag: string | null;
  next: string | null;
}

interface Options {
  query?: Query;
  body?: unknown;
  signal?: AbortSignal;
  headers?: Record<string, string>;
}

/** An event of the window: what this page knows of its session is of another one. */
export const WRONG_CSRF = "wrong_csrf";

let csrf: { header: string; value: string } | null = null;

export function setCsrf(header: string, value: string | null): void {
  csrf = value === null ? null : { header, value };
}

export function address(path: string, query?: Query): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value === null || value === undefined || value === "") continue;
    if (Array.isArray(value)) for (const one of value) params.append(name, String(one));
    else params.append(name, String(value));
  }
  const text = params.toString();
  return text === "" ? path : `${path}?${text}`;
}

export async function call<T>(method: string, path: string, options: Options = {}): Promise<Answer<T>> {
  const response = await send(method, path, options);
  const text = await response.text();
  const data = (text === "" ? null : parseJson(text)) as T;
  return { data, etag: response.headers.get("etag"), next: nextCursor(response.headers.get("link")) };
}

export async function get<T>(path: string, query?: Query, signal?: AbortSignal): Promise<T> {
  return (await call<T>("GET", path, { query, signal })).data;
}

/** What creates something, or only asks. What changes something is sent by `change`. */
export async function post<T>(path: string, body: unknown = {}): Promise<T> {
  return (await call<T>("POST", path, { body })).data;
}

/** The version or the tag of what the person saw when the dialog opened. */
export type Seen = number | string;

/** A change. The server refuses it (412) if the object is no longer what the person saw. */
export async function change<T>(method: "POST" | "PUT" | "PATCH" | "DELETE", path: string, seen: Seen, body?: unknown): Promise<T> {
  return (await call<T>(method, path, { body, headers: { "If-Match": `"${seen}"` } })).data;
}

export async function send(method: string, path: string, options: Options = {}): Promise<Response> {
  const headers: Record<string, string> = { Accept: "application/json, application/problem+json", ...options.headers };
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  if (method !== "GET" && csrf !== null) headers[csrf.header] = csrf.value;
  const init: RequestInit = { method, headers, credentials: "same-origin" };
  if (options.body !== undefined) init.body = JSON.stringify(options.body);
  if (options.signal) init.signal = options.signal;
  let response: Response;
  try {
    response = await fetch(address(path, options.query), init);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    unheard();
    throw new Refused(unreachable());
  }
  if (response.status < 500) heard();
  if (response.ok) return response;
  const problem = await problemOf(response);
  if (problem.code === WRONG_CSRF) window.dispatchEvent(new Event(WRONG_CSRF));
  throw new Refused(problem, waitOf(response));
}

/** The cursor in the header Link of a page. */
function nextCursor(link: string | null): string | null {
  const found = link?.match(/<([^>]*)>;\s*rel="?next"?/)?.[1];
  return found === undefined ? null : new URL(found, location.href).searchParams.get("cursor");
}

async function problemOf(response: Response): Promise<Problem> {
  try {
    const problem = (await response.json()) as Problem;
    if (typeof problem.code === "string" && typeof problem.detail === "string") return problem;
  } catch {
    // Something between the server and this page has answered.
  }
  return {
    type: "about:blank", title: "Unexpected answer", status: response.status, code: "unexpected_answer",
    detail: `The server answered with status ${response.status}.`, errors: [],
    hint: "Look at the log of the server, or of the proxy before it.",
  } as unknown as Problem;
}

/** Whether the server answers at all. */
export async function reachable(): Promise<boolean> {
  return fetch("/readyz").then(() => true, () => false);
}

function unreachable(): Problem {
  return {
    type: "about:blank", title: "No answer", status: 0, code: "no_answer",
    detail: "The server does not answer.", hint: "This page tries again by itself.", errors: [],
  } as unknown as Problem;
}

function waitOf(response: Response): number | null {
  const seconds = Number(response.headers.get("retry-after"));
  return Number.isFinite(seconds) && seconds > 0 ? seconds : null;
}
