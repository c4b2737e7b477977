// Shown in place of any page while nobody is signed in. The address stays, so signing in leads there.
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useEffect, useState } from "react";
import type { Refused } from "../api/client";
import { signIn } from "../api/session";
import { Button } from "../ui/Button";
import { Field } from "../ui/Field";
import { ProblemBox } from "../ui/Problem";
import styles from "./SignIn.module.css";

export function SignIn({ refused }: { refused: Refused }) {
  const client = useQueryClient();
  const [token, setToken] = useState("");
  const [error, setError] = useState<unknown>(refused.problem.code === "invalid_link" ? refused : null);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    document.title = "Sign in · Mainspring";
  }, []);
  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    try {
      await signIn(token.trim());
      await client.resetQueries(); // what is remembered may be of another tenant
    } catch (problem) {
      setError(problem);
    } finally {
      setBusy(false);
    }
  };
  return (
    <main className={styles.page}>
      <form className={styles.card} onSubmit={(event) => void submit(event)}>
        <h1>
          <img src={`${import.meta.env.BASE_URL}favicon.svg`} alt="" width={32} height={32} /> Sign in to Mainspring
        </h1>
        <p className="muted">The quickest way is a link that works once. On the machine of the server, type:</p>
        <pre className={styles.command}>mainspring open</pre>
        <p className="muted">Or use a token of your tenant:</p>
        <Field
          label="Token" type="password" autoComplete="current-password" required value={token}
          onChange={(event) => setToken(event.target.value)}
        />
        {error ? <ProblemBox error={error} /> : null}
        <Button kind="primary" type="submit" busy={busy}>
          Sign in
        </Button>
      </form>
    </main>
  );
}
