// Native dialogs: they keep the focus, close with Escape and give the focus back.
import { useQuery } from "@tanstack/react-query";
import { X } from "lucide-react";
import { type FormEvent, type ReactNode, useEffect, useId, useRef, useState } from "react";
import { Refused } from "../api/client";
import { sessionQuery, useMay } from "../api/session";
import { AsCommand, type Same } from "./AsCommand";
import { Button } from "./Button";
import styles from "./Dialog.module.css";
import { ProblemBox } from "./Problem";

interface Props {
  title: string;
  onClose: () => void;
  children: ReactNode;
  wide?: boolean;
}

export function Dialog({ title, onClose, children, wide = false }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const name = useId();
  useEffect(() => {
    const shown = dialog.current;
    if (shown !== null && !shown.open) {
      shown.showModal();
      // The browser would focus the first control, which closes the dialog.
      (shown.querySelector<HTMLElement>("input, textarea, select") ?? shown).focus();
    }
    return () => shown?.close();
  }, []);
  return (
    <dialog
      ref={dialog}
      tabIndex={-1}
      className={`${styles.dialog} ${wide ? styles.wide : ""}`}
      aria-labelledby={name}
      onClose={onClose}
      onClick={(event) => event.target === dialog.current && onClose()}
    >
      <div className={styles.body}>
        <header className={styles.head}>
          <h2 id={name} className="wrap">
            {title}
          </h2>
          <Button kind="quiet" icon={<X size={16} />} aria-label="Close" onClick={onClose} />
        </header>
        {children}
      </div>
    </dialog>
  );
}

interface ConfirmProps {
  title: string;
  /** What happens, and to what. */
  children: ReactNode;
  verb: string;
  danger?: boolean;
  /** Above 100 the number has to be typed. */
  amount?: number;
  act: () => Promise<unknown>;
  onClose: () => void;
  /** Called when somebody has changed the same thing meanwhile: reads again what it is now. */
  onConflict?: () => void;
  /** What the server calls it, if fewer roles may do it than may change something. */
  operation?: string;
  /** The token that created what is changed, if its creator may do it. */
  creator?: string | null;
  /** The same as a command, to take along. */
  same?: Same;
}

export function Confirm({ title, children, verb, danger = false, amount = 1, act, onClose, onConflict, operation, creator, same }: ConfirmProps) {
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const [typed, setTyped] = useState("");
  const many = amount > 100;
  const mayChange = useMay(operation, creator);
  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    try {
      await act();
      onClose();
    } catch (problem) {
      setError(problem);
      if (isConflict(problem)) onConflict?.();
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <form onSubmit={(event) => void submit(event)} className={styles.form}>
        <div className={styles.text}>{children}</div>
        {many ? (
          <label className={styles.typed}>
            Type {amount} to go on
            <input value={typed} inputMode="numeric" onChange={(event) => setTyped(event.target.value)} />
          </label>
        ) : null}
        {same ? <AsCommand same={same} /> : null}
        {error ? <ConflictOrProblem error={error} /> : null}
        {mayChange ? null : <OnlyLooks />}
        <footer className={styles.foot}>
          {isConflict(error) ? (
            <Button kind="primary" onClick={onClose}>
              Look at it now
            </Button>
          ) : (
            <>
              <Button onClick={onClose}>Not now</Button>
              <Button kind={danger ? "danger" : "primary"} type="submit" busy={busy} disabled={!mayChange || (many && typed !== String(amount))}>
                {verb}
              </Button>
            </>
          )}
        </footer>
      </form>
    </Dialog>
  );
}

export function OnlyLooks() {
  const role = useQuery(sessionQuery).data?.role;
  if (role === "submitter")
    return <p role="note">You are signed in as a submitter: submitters create jobs and workflows, and change those that they have created. Sign in with a token of an operator or an admin.</p>;
  return role === "operator" ? (
    <p role="note">You are signed in as an operator: operators keep things running. Jobs, workflows, calendars, channels, rules, secrets and tokens are changed with a token of an admin.</p>
  ) : (
    <p role="note">You are signed in as a viewer: viewers look, and change nothing. Sign in with a token of an admin.</p>
  );
}

export function isConflict(error: unknown): boolean {
  return error instanceof Refused && (error.status === 412 || error.problem.code === "version_mismatch");
}

export function ConflictOrProblem({ error }: { error: unknown }) {
  if (!isConflict(error)) return <ProblemBox error={error} />;
  return (
    <ProblemBox error={error}>
      <p>Somebody has changed it since this page read it. Look at what it is now, then decide again.</p>
    </ProblemBox>
  );
}
