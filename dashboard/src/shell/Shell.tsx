// What every page has: who is signed in, side bar or bottom bar, top bar, palette, keys.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Outlet, useRouterState } from "@tanstack/react-router";
import { lazy, Suspense, useEffect, useState } from "react";
import { Refused } from "../api/client";
import { useInvitation } from "../api/invitation";
import { useProviderReturn } from "../api/providers";
import { onAnotherSession, onLink, sessionQuery, useOffer } from "../api/session";
import { useBeating } from "../live/useBeating";
import { useLive } from "../live/useLive";
import { patiently } from "../lib/patiently";
import { Skeleton } from "../ui/Page";
import { ProblemBox } from "../ui/Problem";
import { TimeCard } from "../ui/Time";
import { Toasts } from "../ui/Toasts";
import { BottomBar } from "./BottomBar";
import { Keys } from "./Keys";
import { Palette } from "./Palette";
import styles from "./Shell.module.css";
import { SideBar } from "./SideBar";
import { TopBar } from "./TopBar";

// Most people are signed in already: who is, loads none of these.
const Invitation = lazy(patiently(() => import("./Invitation").then((part) => ({ default: part.Invitation }))));
const OtherSession = lazy(patiently(() => import("./OtherSession").then((part) => ({ default: part.OtherSession }))));
const ProviderReturned = lazy(patiently(() => import("./ProviderReturned").then((part) => ({ default: part.ProviderReturned }))));
const SignIn = lazy(patiently(() => import("./SignIn").then((part) => ({ default: part.SignIn }))));

export function Shell() {
  return (
    <Suspense fallback={<Skeleton />}>
      <WhoIsIt />
    </Suspense>
  );
}

function WhoIsIt() {
  const client = useQueryClient();
  const session = useQuery(sessionQuery);
  const offer = useOffer();
  const invitation = useInvitation();
  const returned = useProviderReturn();
  useEffect(() => onAnotherSession(() => void client.resetQueries()), [client]); // nothing of the old one stays
  useEffect(() => onLink(() => void client.refetchQueries({ queryKey: sessionQuery.queryKey })), [client]);
  if (returned !== null) return <ProviderReturned given={returned} />;
  if (invitation !== null) return <Invitation code={invitation} />;
  if (session.isPending) return <Skeleton />;
  if (session.error instanceof Refused && session.error.status === 401) return <SignIn refused={session.error} />;
  if (session.data === undefined)
    return (
      <main className={styles.alone}>
        <ProblemBox error={session.error} retry={() => void session.refetch()} />
      </main>
    );
  if (offer !== null) return <OtherSession offer={offer} session={session.data} />;
  return <SignedIn />;
}

function SignedIn() {
  const [palette, setPalette] = useState(false);
  const [help, setHelp] = useState(false);
  const path = useRouterState({ select: (state) => state.location.pathname });
  const stale = useBeating();
  useLive();
  useEffect(() => {
    setPalette(false);
    setHelp(false);
  }, [path]);
  return (
    <div className={styles.shell}>
      <a href="#content" className={styles.skip}>
        To the content
      </a>
      <SideBar />
      <div className={styles.main}>
        <TopBar onSearch={() => setPalette(true)} />
        <main id="content" tabIndex={-1} className={stale ? styles.stale : undefined}>
          <Outlet />
        </main>
      </div>
      <BottomBar />
      {palette ? <Palette onClose={() => setPalette(false)} /> : null}
      <Keys help={help} onHelp={setHelp} onSearch={() => setPalette(true)} />
      <TimeCard />
      <Toasts />
    </div>
  );
}
