// Reads again what shows a topic that has changed: at once, and then at a bounded pace however much happens.
import type { Query, QueryClient } from "@tanstack/react-query";
import { LISTS, thingsShown, topicsOf } from "./topics";

const LIST_MS = 2000;
const THING_MS = 500;
const BUSY_MS = 300; // a read is under way that may not see the change

export class Refresher {
  private readonly client: QueryClient;
  private readonly due = new Map<string, number>();
  private readonly timers = new Map<string, number>();

  constructor(client: QueryClient) {
    this.client = client;
  }

  changed(topic: string): void {
    if (this.timers.has(topic)) return;
    const wait = (this.due.get(topic) ?? 0) - Date.now();
    if (wait > 0) this.later(topic, wait);
    else this.read(topic);
  }

  all(): void {
    for (const topic of [...LISTS, ...thingsShown(this.client)]) this.changed(topic);
  }

  stop(): void {
    for (const timer of this.timers.values()) window.clearTimeout(timer);
    this.timers.clear();
  }

  private later(topic: string, ms: number): void {
    this.timers.set(
      topic,
      window.setTimeout(() => {
        this.timers.delete(topic);
        this.read(topic);
      }, ms),
    );
  }

  private read(topic: string): void {
    const predicate = (query: Query): boolean => topicsOf(query.queryKey).includes(topic);
    if (this.client.isFetching({ predicate }) > 0) {
      this.later(topic, BUSY_MS);
      return;
    }
    this.due.set(topic, Date.now() + (topic.includes(":") ? THING_MS : LIST_MS));
    if (this.due.size > 1000) this.due.clear();
    void this.client.invalidateQueries({ predicate, refetchType: shown() });
  }
}

/** A hidden tab reads when it is shown again. */
function shown(): "active" | "none" {
  return document.hidden ? "none" : "active";
}
