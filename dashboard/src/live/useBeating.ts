// Asks the server every 5 s whether it is there (hidden: every minute), so that a silent page cannot look live. While
// the stream lives, its beats say so.
import { useEffect } from "react";
import { send } from "../api/client";
import { link, look, useBeat } from "./beat";

const EVERY_MS = 5000;
const HIDDEN_MS = 60_000;
const LONGEST_MS = 5000;

export function useBeating(): boolean {
  const { stale } = useBeat();
  useEffect(() => {
    let timer: number | undefined;
    let ended = false;
    const beat = async (): Promise<void> => {
      const signal = AbortSignal.timeout(LONGEST_MS); // a server that stands still is silent, too
      if (link() !== "live") await send("GET", "/readyz", { signal }).catch(() => undefined);
      look();
      if (!ended) timer = window.setTimeout(() => void beat(), document.hidden ? HIDDEN_MS : EVERY_MS);
    };
    timer = window.setTimeout(() => void beat(), EVERY_MS);
    const ticking = window.setInterval(look, 1000);
    return () => {
      ended = true;
      window.clearTimeout(timer);
      window.clearInterval(ticking);
    };
  }, []);
  return stale;
}
