// Keeps what is shown up to date by the event stream, as long as somebody is signed in.
import { useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { sessionQuery } from "../api/session";
import { setLink } from "./beat";
import { Refresher } from "./refresh";
import { Tabs } from "./tabs";
import { thingsShown } from "./topics";

const SETTLE_MS = 100; // a page that opens begins to show several things

export function useLive(): void {
  const client = useQueryClient();
  useEffect(() => {
    const refresher = new Refresher(client);
    const tabs = new Tabs(() => thingsShown(client), {
      live: (live) => {
        setLink(live ? "live" : "polling");
        refresher.all(); // what changed meanwhile; and the pace of polling is another one now
      },
      changed: (topic) => refresher.changed(topic),
      beat: () => undefined,
      signedOut: () => void client.resetQueries({ queryKey: sessionQuery.queryKey }),
    });
    let shown = "";
    let timer: number | undefined;
    const look = (): void => {
      timer = undefined;
      const now = thingsShown(client).join(",");
      if (now === shown) return;
      shown = now;
      tabs.update();
    };
    const stop = client.getQueryCache().subscribe((event) => {
      if (event.type === "observerAdded" || event.type === "observerRemoved") timer ??= window.setTimeout(look, SETTLE_MS);
    });
    return () => {
      stop();
      window.clearTimeout(timer);
      refresher.stop();
      tabs.close();
      setLink("polling");
    };
  }, [client]);
}
