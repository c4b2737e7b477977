// Shown for a moment when the browser is back from a provider, and longer if the sign-in was refused.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { answerProvider, leaveProviderReturn, type ProviderReturn } from "../api/providers";
import { Button } from "../ui/Button";
import { Skeleton } from "../ui/Page";
import { ProblemBox } from "../ui/Problem";
import { say } from "../ui/Toasts";
import styles from "./SignIn.module.css";

export function ProviderReturned({ given }: { given: ProviderReturn }) {
  const client = useQueryClient();
  const answer = useQuery({ queryKey: ["provider-answer"], queryFn: () => answerProvider(given), retry: false, staleTime: Infinity });
  const begun = answer.data;
  useEffect(() => {
    document.title = "Signing in · Mainspring";
  }, []);
  useEffect(() => {
    if (begun === undefined) return;
    say(`Signed in as ${begun.name}: ${begun.role} of tenant ${begun.tenant}.`);
    leaveProviderReturn();
    void client.resetQueries(); // what is remembered may be of somebody else
  }, [begun, client]);
  if (answer.error === null) return <Skeleton />;
  return (
    <main className={styles.page}>
      <section className={styles.card}>
        <h1>You are not signed in</h1>
        <ProblemBox error={answer.error} />
        <Button kind="primary" onClick={leaveProviderReturn}>
          Back
        </Button>
      </section>
    </main>
  );
}
