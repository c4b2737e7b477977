// Loads the ranges of a log that the page shows, and follows its end.
import { get } from "../../api/client";
import { runPath } from "../../api/queries";
import type { LogRange } from "../../api/schema";
import { followLog } from "./followLog";
import { LogWindow } from "./logWindow";

const LINES = 500;
const RETRY_MS = 2000;

export interface Moved {
  added: number;
  dropped: number;
}

export class LogSource {
  readonly window = new LogWindow();
  error: unknown = null;
  opened = false;
  /** The view is at the end, so older lines may be dropped for newer ones. */
  pinned = true;
  private busy = false;
  private stopped = new AbortController();
  private following: AbortController | null = null;

  constructor(
    private readonly run: string,
    private readonly attempt: number,
    private readonly changed: () => void,
  ) {}

  async openEnd(): Promise<void> {
    await this.load(async () => {
      this.window.open(await this.range({ lines: LINES, numbered: true }));
      this.opened = true;
      return null;
    });
    this.follow();
  }

  /** Show the line that begins at this byte, with lines around it. Returns its place among those that are held. */
  async openAt(byte: number): Promise<number | null> {
    const place = await this.load(async () => {
      const [before, after] = await Promise.all([
        byte === 0 ? null : this.range({ before: byte, lines: LINES, numbered: true }),
        this.range({ start: byte, lines: LINES, numbered: byte === 0 }),
      ]);
      this.unfollow();
      this.window.open(before ?? after);
      if (before === null) return 0;
      const lines = this.window.count;
      this.window.append(after);
      return lines;
    });
    this.follow();
    return place;
  }

  async older(): Promise<Moved | null> {
    const { start } = this.window;
    if (start === 0) return null;
    return this.load(async () => {
      const added = this.window.prepend(await this.range({ before: start, lines: LINES }));
      if (!this.window.reachesEnd) this.unfollow();
      return { added, dropped: 0 };
    });
  }

  async newer(): Promise<Moved | null> {
    if (this.window.reachesEnd) return null;
    const moved = await this.load(async () => {
      const before = this.window.count;
      const dropped = this.window.append(await this.range({ start: this.window.end, lines: LINES }));
      return { added: this.window.count + dropped - before, dropped };
    });
    this.follow();
    return moved;
  }

  close(): void {
    this.stopped.abort();
    this.unfollow();
  }

  /** One request at a time; null if another one is under way or it failed. */
  private async load<T>(ask: () => Promise<T>): Promise<T | null> {
    if (this.busy) return null;
    this.busy = true;
    try {
      const answer = await ask();
      this.error = null;
      return answer;
    } catch (error) {
      if (!this.stopped.signal.aborted) this.error = error;
      return null;
    } finally {
      this.busy = false;
      this.changed();
    }
  }

  private range(query: Record<string, number | boolean>): Promise<LogRange> {
    const attempt = this.attempt > 0 ? this.attempt : this.opened && this.window.attempt > 0 ? this.window.attempt : undefined;
    return get<LogRange>(`${runPath(this.run)}/logs/range`, { ...query, attempt }, this.stopped.signal);
  }

  private unfollow(): void {
    this.following?.abort();
    this.following = null;
  }

  private follow(): void {
    const { window } = this;
    if (this.following !== null || this.stopped.signal.aborted || !this.opened || window.ended || !window.reachesEnd) return;
    const stop = new AbortController();
    this.following = stop;
    void this.read(stop.signal);
  }

  private async read(signal: AbortSignal): Promise<void> {
    const { window } = this;
    while (!signal.aborted && !window.ended) {
      try {
        await followLog(this.run, this.attempt, window.attempt > 0 ? `${window.attempt}:${window.end}` : null, this.events(), signal);
      } catch (error) {
        if (signal.aborted) return;
        this.error = error;
      }
      this.changed();
      if (!window.ended && !signal.aborted) await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }

  private events() {
    const { window } = this;
    return {
      output: (attempt: number, text: string, end: number): void => {
        if (attempt !== window.attempt) window.begin(attempt);
        window.extend(text, end);
        this.error = null;
        if (window.isFull && this.pinned) window.dropOldest();
        else if (window.isFull) {
          window.detached = true;
          this.unfollow();
        }
        this.changed();
      },
      truncated: (): void => {
        window.truncated = true;
        this.changed();
      },
      attempt: (attempt: number): void => {
        window.begin(attempt);
        this.changed();
      },
      end: (): void => {
        window.ended = true;
        this.changed();
      },
    };
  }
}
