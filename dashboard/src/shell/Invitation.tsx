// Shown in place of any page when the link of an invitation, or for a new password, was opened.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useEffect, useState } from "react";
import { acceptInvitation, leaveInvitation, readInvitation } from "../api/invitation";
import { Button } from "../ui/Button";
import { Field } from "../ui/Field";
import { Skeleton } from "../ui/Page";
import { ProblemBox } from "../ui/Problem";
import styles from "./SignIn.module.css";

export function Invitation({ code }: { code: string }) {
  const client = useQueryClient();
  const [password, setPassword] = useState("");
  const [again, setAgain] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const told = useQuery({ queryKey: ["invitation", code], queryFn: () => readInvitation(code), retry: false, staleTime: Infinity });
  useEffect(() => {
    document.title = "Welcome · Mainspring";
  }, []);
  if (told.isPending) return <Skeleton />;
  if (told.data === undefined)
    return (
      <main className={styles.page}>
        <section className={styles.card}>
          <h1>This link does not work</h1>
          <ProblemBox error={told.error} />
          <Button onClick={leaveInvitation}>To the page</Button>
        </section>
      </main>
    );
  const { mail, name, role, tenant, has_password } = told.data;
  const known = has_password && role !== null; // the account exists, and only its owner may accept
  const differs = !known && again !== "" && again !== password;
  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    if (!known && again !== password) return;
    setBusy(true);
    try {
      await acceptInvitation(code, password);
      await client.resetQueries();
    } catch (problem) {
      setError(problem);
    } finally {
      setBusy(false);
    }
  };
  return (
    <main className={styles.page}>
      <form className={styles.card} onSubmit={(event) => void submit(event)}>
        <h1 className="wrap">{role === null ? "Choose a new password" : `Welcome, ${name}`}</h1>
        <p className="muted wrap">
          {role === null ? `For ${mail}. All sessions that are open end.` : `You are invited as ${role} of the tenant ${tenant}.`}
          {known ? " Type the password that you have here." : ""}
        </p>
        <input type="email" name="username" autoComplete="username" value={mail} readOnly hidden />
        <Field
          label="Password" type="password" required autoComplete={known ? "current-password" : "new-password"} value={password}
          {...(known ? {} : { minLength: 12, help: "at least 12 characters" })} onChange={(event) => setPassword(event.target.value)}
        />
        {known ? null : (
          <Field
            label="Password again" type="password" required autoComplete="new-password" value={again}
            problem={differs ? "It is not the same." : null} onChange={(event) => setAgain(event.target.value)}
          />
        )}
        {error ? <ProblemBox error={error} /> : null}
        <Button kind="primary" type="submit" busy={busy}>
          {known ? "Accept" : role === null ? "Set the password" : "Set the password and sign in"}
        </Button>
      </form>
    </main>
  );
}
