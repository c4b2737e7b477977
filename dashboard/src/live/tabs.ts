// One stream for all tabs of a browser: HTTP/1.1 gives it six connections to a server. The tab that has the lock holds
// the stream, and tells the others. When it is closed, another tab gets the lock.
import { heard } from "./beat";
import { Connection, type Ears } from "./connection";
import { LISTS, MOST_THINGS } from "./topics";

type Message =
  | { kind: "wants"; tab: string; things: string[] }
  | { kind: "gone"; tab: string }
  | { kind: "who" }
  | { kind: "live"; live: boolean }
  | { kind: "changed"; topic: string }
  | { kind: "signedOut" }
  | { kind: "beat" };

const NAME = "mainspring-stream";
const SILENT_MS = 15_000;

export class Tabs {
  private readonly ears: Ears;
  private readonly shown: () => string[];
  private readonly tab = Math.random().toString(36).slice(2);
  private readonly channel = new BroadcastChannel(NAME);
  private readonly others = new Map<string, string[]>();
  private readonly stopped = new AbortController();
  private readonly watch: number;
  private connection: Connection | null = null;
  private live = false;
  private heardAt = 0;

  constructor(shown: () => string[], ears: Ears) {
    this.shown = shown;
    this.ears = ears;
    this.channel.onmessage = (event: MessageEvent<Message>) => this.receive(event.data);
    this.watch = window.setInterval(() => this.look(), 1000);
    window.addEventListener("pagehide", this.leave);
    this.update();
    void this.lead();
  }

  /** This tab shows other things. */
  update(): void {
    if (this.connection !== null) this.connection.update();
    else this.tell({ kind: "wants", tab: this.tab, things: this.shown() });
  }

  close(): void {
    window.removeEventListener("pagehide", this.leave);
    window.clearInterval(this.watch);
    this.leave();
    this.stopped.abort();
    this.connection?.close();
    this.channel.close();
  }

  private readonly leave = (): void => this.tell({ kind: "gone", tab: this.tab });

  private async lead(): Promise<void> {
    const { signal } = this.stopped;
    if (!("locks" in navigator)) {
      this.holdWhileShown();
      document.addEventListener("visibilitychange", this.holdWhileShown, { signal });
      return;
    }
    await navigator.locks
      .request(NAME, { signal }, async () => {
        this.hold();
        await new Promise((done) => signal.addEventListener("abort", done));
      })
      .catch(() => undefined); // this tab was closed while it waited
  }

  /** Plain HTTP from another machine is no secure context, and has no locks: then each tab that is shown has a stream. */
  private readonly holdWhileShown = (): void => {
    if (!document.hidden) {
      if (this.connection === null) this.hold();
      return;
    }
    this.connection?.close();
    this.connection = null;
    this.setLive(false);
  };

  private hold(): void {
    if (this.stopped.signal.aborted) return;
    this.tell({ kind: "who" });
    this.connection = new Connection(() => this.wanted(), {
      live: (live) => {
        this.tell({ kind: "live", live });
        this.setLive(live);
      },
      changed: (topic) => {
        this.tell({ kind: "changed", topic });
        this.ears.changed(topic);
      },
      beat: () => this.tell({ kind: "beat" }),
      signedOut: () => {
        this.tell({ kind: "signedOut" });
        this.ears.signedOut();
      },
    });
  }

  private wanted(): string[] {
    const things = new Set([...this.shown(), ...[...this.others.values()].flat()]);
    return [...LISTS, ...[...things].slice(0, MOST_THINGS)];
  }

  private receive(message: Message): void {
    if (this.connection !== null) {
      if (message.kind === "wants") {
        this.others.set(message.tab, message.things);
        this.tell({ kind: "live", live: this.live });
        this.connection.update();
      } else if (message.kind === "gone") this.others.delete(message.tab);
      return;
    }
    if (message.kind === "who") this.update();
    else if (message.kind === "live") this.setLive(message.live);
    else if (message.kind === "changed") this.ears.changed(message.topic);
    else if (message.kind === "signedOut") this.ears.signedOut();
    if (message.kind === "beat" || message.kind === "changed") {
      this.heardAt = Date.now();
      heard();
    }
  }

  private setLive(live: boolean): void {
    this.heardAt = Date.now();
    if (this.live === live) return;
    this.live = live;
    this.ears.live(live);
  }

  /** The tab that holds the stream is gone or frozen. */
  private look(): void {
    if (this.connection === null && this.live && Date.now() - this.heardAt > SILENT_MS) this.setLive(false);
  }

  private tell(message: Message): void {
    this.channel.postMessage(message);
  }
}
