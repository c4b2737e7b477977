// The link of an invitation, or for a new password, has a one-time code in its fragment, which no log sees. The page asks
// for a password before the code is used.
import { useSyncExternalStore } from "react";
import { call } from "./client";
import { changed } from "./session";
import type { Accepted } from "./schema";

const PATH = "/v1/user/accept";
let code: string | null = take();
const listeners = new Set<() => void>();

window.addEventListener("hashchange", () => set(take() ?? code));

export function useInvitation(): string | null {
  return useSyncExternalStore((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, () => code);
}

function set(next: string | null): void {
  code = next;
  for (const listener of listeners) listener();
}

/** What the link is for. */
export async function readInvitation(given: string): Promise<Accepted> {
  return (await call<Accepted>("POST", PATH, { body: { code: given, preview: true } })).data;
}

/** Signs in with it. */
export async function acceptInvitation(given: string, password: string): Promise<void> {
  await call<Accepted>("POST", PATH, { body: { code: given, password } });
  leaveInvitation();
  changed();
}

export function leaveInvitation(): void {
  set(null);
}

/** The code leaves the address before it is used: neither history nor a copied address keeps it. */
function take(): string | null {
  const found = new URLSearchParams(location.hash.slice(1)).get("invite");
  if (found !== null) history.replaceState(history.state, "", location.pathname + location.search);
  return found;
}
