// A request with values of one's own: as a command to copy, and what reads can be sent from here.
import { useState } from "react";
import { Refused, send } from "../../api/client";
import { parseJson } from "../../lib/json";
import { Button } from "../../ui/Button";
import { Copy } from "../../ui/Copy";
import { Field, Select, TextArea } from "../../ui/Field";
import styles from "./Docs.module.css";
import { addressOf, bodyOf, curlOf, type Operation } from "./model";

const SHOWN = 20_000;
const STREAMS = "text/event-stream";

export function TryIt({ operation }: { operation: Operation }) {
  const examples = Object.entries(bodyOf(operation)?.examples ?? {});
  const [values, setValues] = useState<Record<string, string>>({});
  const [body, setBody] = useState(() => text(examples[0]?.[1].value));
  const command = curlOf(operation, values, body, location.origin);
  return (
    <div className={styles.stack}>
      {operation.parameters?.length ? (
        <div className={styles.grid}>
          {operation.parameters.map(({ name, in: place, example, required }) => (
            <Field
              key={name} label={required ? `${name} *` : name} value={values[name] ?? ""} help={place === "query" ? undefined : `in the ${place}`}
              placeholder={example === undefined ? "" : String(example)} onChange={(event) => setValues({ ...values, [name]: event.target.value })}
            />
          ))}
        </div>
      ) : null}
      {examples.length > 1 ? (
        <Select
          label="Example" options={examples.map(([key, one]) => [key, one.summary])}
          onChange={(event) => setBody(text(bodyOf(operation)?.examples?.[event.target.value]?.value))}
        />
      ) : null}
      {bodyOf(operation) ? <TextArea label="Body" rows={8} value={body} onChange={(event) => setBody(event.target.value)} /> : null}
      <div className={styles.command}>
        <pre tabIndex={0} aria-label="Command">
          {command}
        </pre>
        <Copy text={command} label="Copy the command" />
      </div>
      {operation.method === "GET" ? <Sending operation={operation} values={values} /> : <p className="muted">Changes are not sent from this page. Copy the command.</p>}
    </div>
  );
}

function Sending({ operation, values }: { operation: Operation; values: Record<string, string> }) {
  const [answer, setAnswer] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const go = async (): Promise<void> => {
    setBusy(true);
    try {
      const response = await send("GET", addressOf(operation, values));
      setAnswer(response.headers.get("content-type")?.startsWith(STREAMS) ? "A stream: follow it with the command." : pretty(await response.text()));
    } catch (error) {
      setAnswer(error instanceof Refused ? text(error.problem) : String(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <div>
        <Button busy={busy} onClick={() => void go()}>
          Send it as you
        </Button>
      </div>
      {answer === null ? null : (
        <pre className={styles.answer} tabIndex={0} aria-label="Answer">
          {answer.length > SHOWN ? `${answer.slice(0, SHOWN)}\n… ${answer.length - SHOWN} more characters` : answer}
        </pre>
      )}
    </>
  );
}

function text(value: unknown): string {
  return value === undefined ? "" : JSON.stringify(value, null, 2);
}

function pretty(answer: string): string {
  try {
    return text(parseJson(answer));
  } catch {
    return answer;
  }
}
