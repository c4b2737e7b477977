// Who is signed in. The link of `mainspring open` has a one-time code in its fragment, which no log sees.
import { queryOptions, useQuery } from "@tanstack/react-query";
import { call, setCsrf, WRONG_CSRF } from "./client";
import type { SessionView } from "./schema";

const PATH = "/v1/session";
const tabs = new BroadcastChannel("mainspring-session");
export const CSRF_HEADER = "Mainspring-CSRF";

export const sessionQuery = queryOptions({
  queryKey: ["session"],
  queryFn: readSession,
  staleTime: Infinity,
  retry: false,
});

/** Viewers look, and change nothing. The server refuses it as well. */
export function useMayChange(): boolean {
  return useQuery(sessionQuery).data?.role !== "viewer";
}

async function readSession(): Promise<SessionView> {
  const code = takeCode();
  if (code !== null) await begin({ code });
  const { data } = await call<SessionView>("GET", PATH);
  setCsrf(CSRF_HEADER, data.csrf);
  return data;
}

export async function signIn(token: string): Promise<void> {
  await begin({ token });
}

async function begin(body: { code: string } | { token: string }): Promise<void> {
  await call("POST", PATH, { body });
  tabs.postMessage("another");
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

/** The code leaves the address before it is used: neither history nor a copied address keeps it. */
function takeCode(): string | null {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code === null) return null;
  history.replaceState(history.state, "", location.pathname + location.search);
  return code;
}
