// Loads a part of the page, also where the server cannot be reached just now: then it is loaded as soon as it answers.
import { reachable } from "../api/client";

const WAIT_MS = 2000;

export function patiently<T>(load: () => Promise<T>): () => Promise<T> {
  return async () => {
    for (;;) {
      try {
        return await load();
      } catch (error) {
        if (await reachable()) return load().catch(() => Promise.reject(error)); // the file is one of an older version
        await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
      }
    }
  };
}
