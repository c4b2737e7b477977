// Who is signed in. The link of `mainspring open` has a one-time code in its fragment, which no log sees. A stranger can
// send such a link, and what is done afterwards is done in the stranger's tenant. So a link does not replace a session
// before the person has agreed, and without a session the page says as whom it signed in.
import { queryOptions, useQuery } from "@tanstack/react-query";
import { useSyncExternalStore } from "react";
import { say } from "../ui/Toasts";
import { call, Refused, setCsrf, WRONG_CSRF } from "./client";
import type { SessionView, SignedIn } from "./schema";

const PATH = "/v1/session";
const tabs = new BroadcastChannel("mainspring-session");
export const CSRF_HEADER = "Mainspring-CSRF";

export const sessionQuery = queryOptions({
  queryKey: ["session"],
  queryFn: readSession,
  staleTime: Infinity,
  retry: false,
  // A refusal is final. A server that is silent may answer later.
  refetchInterval: (query) => (query.state.error !== null && !(query.state.error instanceof Refused && query.state.error.status === 401) ? 3000 : false),
});

/** Whether the role of the session may call this operation; without one: whether it may change anything. `creator`: the
 * token that created what is changed, because a submitter changes only its own. The server refuses it as well. */
export function useMay(operation?: string, creator?: string | null): boolean {
  const session = useQuery(sessionQuery).data;
  if (session === undefined) return true;
  if (operation !== undefined && !session.operations.includes(operation)) return false;
  if (session.role === "submitter") return creator === undefined ? operation !== undefined : creator === session.token_id;
  return operation !== undefined || session.role !== "viewer";
}

/** A link that was opened in a browser that is signed in: as whom it would sign in. */
export interface Offer {
  code: string;
  name: string;
  role: string;
  tenant: string;
}

let offer: Offer | null = null;
const listeners = new Set<() => void>();

export function useOffer(): Offer | null {
  return useSyncExternalStore((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, () => offer);
}

function setOffer(next: Offer | null): void {
  offer = next;
  for (const listener of listeners) listener();
}

async function readSession(): Promise<SessionView> {
  const code = takeCode();
  if (code === null) return current();
  const before = await currentOrNone();
  if (before === null) {
    const made = await begin({ code });
    say(`Signed in as ${made.name}: ${made.role} of tenant ${made.tenant}.`);
    return current();
  }
  try {
    const { data } = await call<SignedIn>("POST", PATH, { body: { code, preview: true } });
    setOffer({ code, name: data.name, role: data.role, tenant: data.tenant });
  } catch (problem) {
    if (!(problem instanceof Refused)) throw problem;
    say(`You are still signed in as ${before.name}: ${problem.problem.detail}.`);
  }
  return before;
}

async function current(): Promise<SessionView> {
  const { data } = await call<SessionView>("GET", PATH);
  setCsrf(CSRF_HEADER, data.csrf);
  return data;
}

async function currentOrNone(): Promise<SessionView | null> {
  try {
    return await current();
  } catch (problem) {
    if (problem instanceof Refused && problem.status === 401) return null;
    throw problem;
  }
}

export async function signIn(token: string): Promise<void> {
  await begin({ token });
}

export async function signInWithPassword(mail: string, password: string): Promise<void> {
  await begin({ mail, password });
}

/** This browser has another session now: other tabs ask who is signed in. */
export function changed(): void {
  tabs.postMessage("another");
}

/** Signs in by the link, in place of the session that is there. */
export async function accept(offered: Offer): Promise<void> {
  await begin({ code: offered.code, replace: true });
  setOffer(null);
}

export function decline(): void {
  setOffer(null);
}

async function begin(body: { code: string; replace?: boolean } | { token: string } | { mail: string; password: string }): Promise<SignedIn> {
  const { data } = await call<SignedIn>("POST", PATH, { body });
  changed();
  return data;
}

/** Tells when a link is opened in a tab that has the page already: only the fragment changes. */
export function onLink(listener: () => void): () => void {
  const look = (): void => {
    if (hasCode()) listener();
  };
  window.addEventListener("hashchange", look);
  return () => window.removeEventListener("hashchange", look);
}

/** Tells when the cookie of this browser is one of another session: another tab has signed in or out. */
export function onAnotherSession(listener: () => void): () => void {
  tabs.addEventListener("message", listener);
  window.addEventListener(WRONG_CSRF, listener);
  return () => {
    tabs.removeEventListener("message", listener);
    window.removeEventListener(WRONG_CSRF, listener);
  };
}

export async function signOut(): Promise<void> {
  await call("DELETE", PATH);
  setCsrf(CSRF_HEADER, null);
  tabs.postMessage("another");
}

function hasCode(): boolean {
  return new URLSearchParams(location.hash.slice(1)).has("code");
}

/** The code leaves the address before it is used: neither history nor a copied address keeps it. */
function takeCode(): string | null {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code === null) return null;
  history.replaceState(history.state, "", location.pathname + location.search);
  return code;
}
