// The life of a run as a strip: waits and attempts, one after another.
import type { RunView, TimelineEntry } from "../../api/schema";
import { duration } from "../../lib/format";
import { MOST_ROWS } from "../../ui/Parts";
import { StateShape, words } from "../../ui/StateMark";
import styles from "./RunPage.module.css";
import { useTimeline } from "./Timeline";

const MOST_TOLD = 12;

interface Piece {
  text: string;
  state: string | null;
  title: string;
}

export function Strip({ run }: { run: RunView }) {
  const timeline = useTimeline(run);
  const pieces = piecesOf(timeline.data ?? []).slice(-MOST_ROWS);
  if (pieces.length < 2) return null;
  return (
    <div className={styles.strip} role="img" aria-label={inWords(pieces)} tabIndex={0}>
      {pieces.map((piece, index) => (
        <span key={index} className={`${styles.piece} ${piece.state === null ? styles.wait : ""}`} title={piece.title}>
          {piece.state === null ? null : <StateShape state={piece.state} size={12} />} {piece.text}
        </span>
      ))}
    </div>
  );
}

function inWords(pieces: Piece[]): string {
  const last = pieces.slice(-MOST_TOLD).map((piece) => piece.title).join(", then ");
  return pieces.length > MOST_TOLD ? `Of ${pieces.length} waits and attempts, the last: ${last}` : last;
}

function piecesOf(entries: TimelineEntry[]): Piece[] {
  const pieces: Piece[] = [];
  entries.forEach((entry, index) => {
    const next = entries[index + 1];
    const seconds = next === undefined ? null : (Date.parse(next.at) - Date.parse(entry.at)) / 1000;
    // An attempt took what its worker measured, which "Ran" shows too.
    const took = seconds === null ? "" : duration(entry.state === "RUNNING" ? (next?.duration ?? seconds) : seconds);
    if (entry.state === "RUNNING") {
      const end = next?.state ?? "RUNNING";
      pieces.push({ text: `attempt ${entry.attempt ?? ""}${took === "" ? "" : `: ${took}`}`, state: end, title: `attempt ${entry.attempt ?? ""} ${words(end)} ${took}` });
    } else if (seconds !== null && seconds > 0.05) {
      const word = entry.state === "FAILED" || entry.state === "SCHEDULED" ? "backs off" : "waits";
      pieces.push({ text: `${word} ${took}`, state: null, title: `${word} ${took}` });
    }
  });
  return pieces;
}
