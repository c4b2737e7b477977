// Shown in place of any page while nobody is signed in. The address stays, so signing in leads there.
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useEffect, useState } from "react";
import type { Refused } from "../api/client";
import { signIn, signInWithPassword } from "../api/session";
import { Button } from "../ui/Button";
import { Field } from "../ui/Field";
import { ProblemBox } from "../ui/Problem";
import { Providers } from "./Providers";
import styles from "./SignIn.module.css";

export function SignIn({ refused }: { refused: Refused }) {
  const client = useQueryClient();
  const [token, setToken] = useState("");
  const [mail, setMail] = useState("");
  const [password, setPassword] = useState("");
  const [error, setError] = useState<unknown>(refused.problem.code === "invalid_link" ? refused : null);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    document.title = "Sign in · Mainspring";
  }, []);
  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    try {
      await (mail.trim() ? signInWithPassword(mail.trim(), password) : signIn(token.trim()));
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
        <Providers verb="Sign in with" />
        <p className="muted">The quickest way is a link that works once. On the machine of the server, type:</p>
        <pre className={styles.command}>mainspring open</pre>
        <p className="muted">Or use a token of your tenant:</p>
        <Field
          label="Token" type="password" autoComplete="off" required={mail === ""} value={token}
          onChange={(event) => setToken(event.target.value)}
        />
        <p className="muted">Or the password that you have chosen here:</p>
        <Field
          label="Mail address" type="email" autoComplete="username" required={token === ""} value={mail}
          onChange={(event) => setMail(event.target.value)}
        />
        <Field
          label="Password" type="password" autoComplete="current-password" required={mail !== ""} value={password}
          onChange={(event) => setPassword(event.target.value)}
        />
        {error ? <ProblemBox error={error} /> : null}
        <Button kind="primary" type="submit" busy={busy}>
          Sign in
        </Button>
      </form>
    </main>
  );
}
