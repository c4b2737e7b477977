// A labelled input with its help and its problem beside it.
import { type InputHTMLAttributes, type ReactNode, type SelectHTMLAttributes, type TextareaHTMLAttributes, useId } from "react";
import styles from "./Field.module.css";

interface Frame {
  label: string;
  help?: ReactNode;
  problem?: string | null | undefined;
}

function Framed({ label, help, problem, id, children }: Frame & { id: string; children: ReactNode }) {
  return (
    <div className={styles.field}>
      <label htmlFor={id}>{label}</label>
      {children}
      {problem ? (
        <p id={`${id}-problem`} className={styles.problem} role="alert">
          {problem}
        </p>
      ) : help ? (
        <p id={`${id}-help`} className={styles.help}>
          {help}
        </p>
      ) : null}
    </div>
  );
}

function described(id: string, frame: Frame): Record<string, unknown> {
  if (frame.problem) return { "aria-invalid": true, "aria-describedby": `${id}-problem` };
  return frame.help ? { "aria-describedby": `${id}-help` } : {};
}

export function Field({ label, help, problem, ...input }: Frame & InputHTMLAttributes<HTMLInputElement>) {
  const id = useId();
  return (
    <Framed label={label} help={help} problem={problem} id={id}>
      <input id={id} className={styles.input} {...described(id, { label, help, problem })} {...input} />
    </Framed>
  );
}

export function TextArea({ label, help, problem, ...input }: Frame & TextareaHTMLAttributes<HTMLTextAreaElement>) {
  const id = useId();
  return (
    <Framed label={label} help={help} problem={problem} id={id}>
      <textarea id={id} spellCheck={false} className={`${styles.input} ${styles.area}`} {...described(id, { label, help, problem })} {...input} />
    </Framed>
  );
}

export function Select({ label, help, problem, options, ...input }: Frame & SelectHTMLAttributes<HTMLSelectElement> & {
  options: [string, string][];
}) {
  const id = useId();
  return (
    <Framed label={label} help={help} problem={problem} id={id}>
      <select id={id} className={styles.input} {...described(id, { label, help, problem })} {...input}>
        {options.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </Framed>
  );
}

/** Some of several: a group of checkboxes. */
export function Choices({ label, help, problem, options, chosen, onChange }: Frame & { options: [string, string][]; chosen: string[]; onChange: (chosen: string[]) => void }) {
  const id = useId();
  return (
    <fieldset className={styles.choices} aria-describedby={problem ? `${id}-problem` : help ? `${id}-help` : undefined}>
      <legend>{label}</legend>
      {options.map(([value, text]) => (
        <label key={value}>
          <input type="checkbox" checked={chosen.includes(value)} onChange={(event) => onChange(event.target.checked ? [...chosen, value] : chosen.filter((one) => one !== value))} /> {text}
        </label>
      ))}
      {problem ? <p id={`${id}-problem`} className={styles.problem} role="alert">{problem}</p> : help ? <p id={`${id}-help`} className={styles.help}>{help}</p> : null}
    </fieldset>
  );
}
