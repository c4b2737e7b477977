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
  private loading: AbortController | null = null;
  private stopped = false;
  private following: AbortController | null = null;

  constructor(
    private readonly run: string,
    private readonly attempt: number,
    private readonly changed: () => void,
  ) {}

  async openEnd(): Promise<void> {
    await this.jump(async (signal) => {
      const last = await this.range({ lines: LINES, numbered: true }, signal);
      this.unfollow();
      this.window.open(last);
      return null;
    });
  }

  /** Show the line that begins at this byte, with lines around it. Returns its place among those that are held. */
  async openAt(byte: number): Promise<number | null> {
    return this.jump(async (signal) => {
      const [before, after] = await Promise.all([
        byte === 0 ? null : this.range({ before: byte, lines: LINES, numbered: true }, signal),
        this.range({ start: byte, lines: LINES, numbered: byte === 0 }, signal),
      ]);
      this.unfollow();
      this.window.open(before ?? after);
      if (before === null) return 0;
      const lines = this.window.count;
      this.window.append(after);
      return lines;
    });
  }

  /** Forget a jump or a part that is still loading: where the view is now is what was asked for last. */
  stay(): void {
    this.loading?.abort();
    this.loading = null;
  }

  async older(): Promise<Moved | null> {
    const { start } = this.window;
    if (start === 0) return null;
    return this.load(async (signal) => {
      const added = this.window.prepend(await this.range({ before: start, lines: LINES }, signal));
      if (!this.window.reachesEnd) this.unfollow();
      return { added, dropped: 0 };
    });
  }

  async newer(): Promise<Moved | null> {
    if (this.window.reachesEnd) return null;
    const moved = await this.load(async (signal) => {
      const next = await this.range({ start: this.window.end, lines: LINES }, signal);
      const before = this.window.count;
      const dropped = this.window.append(next);
      return { added: this.window.count + dropped - before, dropped };
    });
    this.follow();
    return moved;
  }

  close(): void {
    this.stopped = true;
    this.stay();
    this.unfollow();
  }

  /** What is asked for last wins: whatever is loading is given up. */
  private async jump<T>(ask: (signal: AbortSignal) => Promise<T>): Promise<T | null> {
    this.stay();
    const answer = await this.load(async (signal) => {
      const found = await ask(signal);
      this.opened = true;
      return found;
    });
    this.follow();
    return answer;
  }

  /** One request at a time; null if another one is under way, or if it failed or was given up. */
  private async load<T>(ask: (signal: AbortSignal) => Promise<T>): Promise<T | null> {
    if (this.loading !== null || this.stopped) return null;
    const stop = new AbortController();
    this.loading = stop;
    try {
      const answer = await ask(stop.signal);
      this.error = null;
      return answer;
    } catch (error) {
      if (!stop.signal.aborted) this.error = error;
      return null;
    } finally {
      if (this.loading === stop) this.loading = null;
      if (!stop.signal.aborted) this.changed();
    }
  }

  /** It throws where the request was given up, even if the answer has come: nobody may use it. */
  private async range(query: Record<string, number | boolean>, signal: AbortSignal): Promise<LogRange> {
    const attempt = this.attempt > 0 ? this.attempt : this.opened && this.window.attempt > 0 ? this.window.attempt : undefined;
    const answer = await get<LogRange>(`${runPath(this.run)}/logs/range`, { ...query, attempt }, signal);
    signal.throwIfAborted();
    return answer;
  }

  private unfollow(): void {
    this.following?.abort();
    this.following = null;
  }

  private follow(): void {
    const { window } = this;
    if (this.following !== null || this.stopped || !this.opened || window.ended || !window.reachesEnd) return;
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
