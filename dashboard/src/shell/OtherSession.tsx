// A link was opened in a browser that is signed in. Nothing of the link happens before the person has agreed.
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { accept, decline, type Offer } from "../api/session";
import type { SessionView } from "../api/schema";
import { Button } from "../ui/Button";
import { ProblemBox } from "../ui/Problem";
import styles from "./SignIn.module.css";

export function OtherSession({ offer, session }: { offer: Offer; session: SessionView }) {
  const client = useQueryClient();
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    document.title = "Sign in? · Mainspring";
  }, []);
  const agree = async (): Promise<void> => {
    setBusy(true);
    try {
      await accept(offer);
      await client.resetQueries(); // what is remembered is of the other session
    } catch (problem) {
      setError(problem);
    } finally {
      setBusy(false);
    }
  };
  return (
    <main className={styles.page}>
      <section className={styles.card} aria-labelledby="other-session">
        <h1 id="other-session" className="wrap">
          Sign in as {offer.name} of tenant {offer.tenant}?
        </h1>
        <p className="wrap">
          You have opened a link that signs in as <b>{offer.name}</b>: {offer.role} of tenant <b>{offer.tenant}</b>. This browser is
          signed in as <b>{session.name}</b>: {session.role} of tenant <b>{session.tenant}</b>.
        </p>
        <p className="muted">
          Did somebody else send you the link? Then they see what you do after it, and jobs that you create are theirs.
        </p>
        {error ? <ProblemBox error={error} /> : null}
        <Button kind="primary" onClick={decline}>
          Stay signed in as {session.name}
        </Button>
        <Button busy={busy} onClick={() => void agree()}>
          Sign in as {offer.name}
        </Button>
      </section>
    </main>
  );
}
