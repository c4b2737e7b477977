// The connection of this browser to the event stream, held by one tab. It is opened again with other topics before the
// old one is closed, so that nothing is missed between.
import { Refused, send } from "../api/client";
import type { Change, StreamEnd } from "../api/schema";
import { heard, unheard } from "./beat";
import { eventsOf } from "./events";

const SILENT_MS = 12_000; // the server sends a beat every 5 s
const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 15_000;

export interface Ears {
  live: (live: boolean) => void;
  changed: (topic: string) => void;
  beat: () => void;
  signedOut: () => void;
}

interface Line {
  topics: Set<string>;
  stop: AbortController;
  heardAt: number;
}

export class Connection {
  private readonly ears: Ears;
  private readonly wanted: () => string[];
  private line: Line | null = null;
  private failures = 0;
  private retry: number | undefined;
  private readonly watch: number;
  private ended = false;

  constructor(wanted: () => string[], ears: Ears) {
    this.wanted = wanted;
    this.ears = ears;
    this.watch = window.setInterval(() => this.look(), 1000);
    this.connect();
  }

  /** Something else may be wanted. */
  update(): void {
    if (this.line !== null && this.wanted().some((topic) => !this.line?.topics.has(topic))) this.connect();
  }

  close(): void {
    this.ended = true;
    window.clearInterval(this.watch);
    window.clearTimeout(this.retry);
    this.line?.stop.abort();
  }

  private connect(): void {
    window.clearTimeout(this.retry);
    const before = this.line;
    const line = { topics: new Set(this.wanted()), stop: new AbortController(), heardAt: Date.now() };
    this.line = line;
    void this.read(line, before).catch((error: unknown) => this.lost(line, error)).finally(() => before?.stop.abort());
  }

  private async read(line: Line, before: Line | null): Promise<void> {
    const query = { topics: [...line.topics].join(",") };
    const response = await send("GET", "/v1/stream", { query, signal: line.stop.signal });
    for await (const event of eventsOf(response)) {
      if (line.stop.signal.aborted) break;
      line.heardAt = Date.now();
      heard();
      this.ears.beat();
      if (event?.name === "open") {
        before?.stop.abort();
        this.failures = 0;
        this.ears.live(true);
      } else if (event?.name === "change") this.ears.changed((event.data as Change).topic);
      else if (event?.name === "end" && (event.data as StreamEnd).reason === "signed_out") this.ears.signedOut();
    }
    this.lost(line, null);
  }

  private lost(line: Line, error: unknown): void {
    if (this.ended || this.line !== line) return;
    this.line = null;
    this.ears.live(false);
    if (error instanceof Refused && error.status === 401) {
      this.ears.signedOut();
      return;
    }
    const asked = error instanceof Refused ? (error.retryAfter ?? 0) * 1000 : 0;
    const wait = Math.max(asked, Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** this.failures++));
    this.retry = window.setTimeout(() => this.connect(), wait);
  }

  private look(): void {
    if (this.line === null || Date.now() - this.line.heardAt <= SILENT_MS) return;
    unheard();
    this.line.stop.abort();
  }
}
