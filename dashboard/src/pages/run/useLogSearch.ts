import { useEffect, useState } from "react";
import { get } from "../../api/client";
import { runPath } from "../../api/queries";
import type { LogMatch, LogMatches } from "../../api/schema";

const MOST = 1000;
const AFTER_TYPING_MS = 250;
const AGAIN_MS = 2000;

export interface Found {
  text: string;
  matches: LogMatch[];
  searchedTo: number;
  bytes: number;
  searching: boolean;
  error: unknown;
}

const NOTHING: Found = { text: "", matches: [], searchedTo: 0, bytes: 0, searching: false, error: null };

/** The lines of an attempt that contain the text, found by the server part by part. While it prints, the search goes on. */
export function useLogSearch(run: string, attempt: number, text: string): Found {
  const [found, setFound] = useState(NOTHING);
  useEffect(() => {
    setFound({ ...NOTHING, text, searching: text !== "" });
    if (text === "" || attempt === 0) return;
    const stop = new AbortController();
    void search(run, attempt, text, stop.signal, setFound);
    return () => stop.abort();
  }, [run, attempt, text]);
  return found;
}

async function search(run: string, attempt: number, text: string, signal: AbortSignal, tell: (found: Found) => void): Promise<void> {
  const byStart = new Map<number, LogMatch>();
  let pause = AFTER_TYPING_MS;
  let start = 0;
  for (;;) {
    if (pause > 0) await new Promise((resolve) => setTimeout(resolve, pause));
    if (signal.aborted) return;
    let part: LogMatches;
    try {
      const query = { text: text.slice(0, 200), attempt, start, limit: 200 };
      part = await get<LogMatches>(`${runPath(run)}/logs/search`, query, signal);
    } catch (error) {
      if (!signal.aborted) tell({ text, matches: [...byStart.values()], searchedTo: start, bytes: 0, searching: false, error });
      return;
    }
    for (const match of part.matches) byStart.set(match.start, match);
    start = part.searched_to;
    const full = byStart.size >= MOST;
    const searching = part.more && !full;
    tell({ text, matches: [...byStart.values()], searchedTo: start, bytes: part.bytes, searching, error: null });
    if (full || (part.ended && !part.more)) return;
    pause = part.more ? 0 : AGAIN_MS;
  }
}
