// A value as JSON text. Large values are cut here, and whole when copied.
import { Copy } from "./Copy";
import styles from "./Json.module.css";

const SHOWN = 100_000;

export function Json({ value, label }: { value: unknown; label: string }) {
  const text = JSON.stringify(value, null, 2) ?? "null";
  return (
    <div className={styles.json}>
      <div className={styles.copy}>
        <Copy text={text} label={`Copy ${label}`} />
      </div>
      <pre tabIndex={0} aria-label={label}>
        {text.length > SHOWN ? `${text.slice(0, SHOWN)}\n… ${text.length - SHOWN} more characters: copy shows all` : text}
      </pre>
    </div>
  );
}
