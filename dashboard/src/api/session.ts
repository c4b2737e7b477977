// Who is signed in. The link of `mainspring open` has a one-time code in its fragment, which no log sees.
import { queryOptions } from "@tanstack/react-query";
import { call, setCsrf } from "./client";
import type { SessionView } from "./schema";

const PATH = "/v1/session";
export const CSRF_HEADER = "Mainspring-CSRF";

export const sessionQuery = queryOptions({
  queryKey: ["session"],
  queryFn: readSession,
  staleTime: Infinity,
  retry: false,
});

async function readSession(): Promise<SessionView> {
  const code = takeCode();
  if (code !== null) await call("POST", PATH, { body: { code } });
  const { data } = await call<SessionView>("GET", PATH);
  setCsrf(CSRF_HEADER, data.csrf);
  return data;
}

export async function signIn(token: string): Promise<void> {
  await call("POST", PATH, { body: { token } });
}

export async function signOut(): Promise<void> {
  await call("DELETE", PATH);
  setCsrf(CSRF_HEADER, null);
}

/** The code leaves the address before it is used: neither history nor a copied address keeps it. */
function takeCode(): string | null {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code === null) return null;
  history.replaceState(history.state, "", location.pathname + location.search);
  return code;
}
