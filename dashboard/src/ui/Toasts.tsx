// Outcomes of actions, said once: on the screen and to a screen reader.
import { type ReactNode, useSyncExternalStore } from "react";
import styles from "./Toasts.module.css";

interface Toast {
  key: number;
  text: ReactNode;
}

let toasts: Toast[] = [];
let last = 0;
const listeners = new Set<() => void>();

export function say(text: ReactNode): void {
  last += 1;
  const key = last;
  toasts = [...toasts.slice(-2), { key, text }];
  publish();
  window.setTimeout(() => {
    toasts = toasts.filter((toast) => toast.key !== key);
    publish();
  }, 6000);
}

function publish(): void {
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function Toasts() {
  const shown = useSyncExternalStore(subscribe, () => toasts);
  return (
    <div className={styles.toasts} role="status" aria-live="polite">
      {shown.map((toast) => (
        <div key={toast.key} className={styles.toast}>
          {toast.text}
        </div>
      ))}
    </div>
  );
}
