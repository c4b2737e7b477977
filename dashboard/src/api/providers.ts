// Signing in at a provider of OpenID Connect: the browser goes there, and comes back to /ui/signed-in with a code. The
// server accepts the code once, and only in the browser that went.
import { queryOptions } from "@tanstack/react-query";
import { useSyncExternalStore } from "react";
import { call, get, Refused } from "./client";
import type { Problem, ProviderAddress, ProviderList, SignedIn } from "./schema";
import { changed } from "./session";

const PATH = "/v1/session/providers";
const BACK = "/ui/signed-in";
const PLACE = "mainspring-place";

export interface ProviderReturn {
  body: { code: string; state: string; iss?: string } | null;
  error: string | null;
}

export const providersQuery = queryOptions({
  queryKey: ["providers"],
  queryFn: ({ signal }) => get<ProviderList>(PATH, {}, signal),
  staleTime: Infinity,
});

let returned: ProviderReturn | null = take();
const listeners = new Set<() => void>();

export function useProviderReturn(): ProviderReturn | null {
  return useSyncExternalStore((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, () => returned);
}

export function leaveProviderReturn(): void {
  returned = null;
  for (const listener of listeners) listener();
}

/** Leaves the page. again: the provider asks who it is, whoever is signed in there. */
export async function goToProvider(provider: string, again = false): Promise<void> {
  const { data } = await call<ProviderAddress>("POST", PATH, { body: { provider, again } });
  sessionStorage.setItem(PLACE, location.pathname + location.search);
  location.assign(data.url);
}

/** Signs in with what the provider has sent. */
export async function answerProvider(given: ProviderReturn): Promise<SignedIn> {
  if (given.body === null) throw new Refused(refusal(given.error));
  const { data } = await call<SignedIn>("POST", `${PATH}/answer`, { body: given.body });
  changed();
  return data;
}

/** The code leaves the address before it is used: neither history nor a copied address keeps it. */
function take(): ProviderReturn | null {
  if (location.pathname !== BACK) return null;
  const given = new URLSearchParams(location.search);
  const place = sessionStorage.getItem(PLACE) ?? "";
  sessionStorage.removeItem(PLACE);
  history.replaceState(history.state, "", place.startsWith("/ui/") ? place : "/ui/");
  const [code, state, iss, error] = ["code", "state", "iss", "error"].map((name) => given.get(name));
  if (code && state) return { body: { code, state, ...(iss ? { iss } : {}) }, error: null };
  return { body: null, error: error !== null && error !== undefined && /^[a-z_]{1,40}$/.test(error) ? error : null };
}

function refusal(error: string | null): Problem {
  return {
    type: "about:blank", title: "Not signed in", status: 401, code: "sign_in_refused",
    detail: error === null ? "The provider has sent no code." : `The provider has refused the sign-in: ${error}.`,
    hint: "Try again, or ask whoever runs this Mainspring.", errors: [],
  } as unknown as Problem;
}
