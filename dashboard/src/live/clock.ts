// One ticking clock for all ages on the page, so that they change together and cost one timer.
import { useSyncExternalStore } from "react";

class Ticker {
  private readonly listeners = new Set<() => void>();
  private timer: number | undefined;
  private now = Date.now();
  private readonly everyMs: number;

  constructor(everyMs: number) {
    this.everyMs = everyMs;
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    if (this.timer === undefined) {
      this.now = Date.now();
      this.timer = window.setInterval(this.tick, this.everyMs);
    }
    return () => {
      this.listeners.delete(listener);
      if (this.listeners.size === 0) {
        window.clearInterval(this.timer);
        this.timer = undefined;
      }
    };
  };

  readonly read = (): number => this.now;

  private readonly tick = (): void => {
    if (document.hidden) return;
    this.now = Date.now();
    for (const listener of this.listeners) listener();
  };
}

const seconds = new Ticker(1000);
const slow = new Ticker(20_000);

/** The time now, renewed every second, or every 20 s where a second makes no difference. */
export function useNow(fine = true): number {
  const ticker = fine ? seconds : slow;
  return useSyncExternalStore(ticker.subscribe, ticker.read);
}
