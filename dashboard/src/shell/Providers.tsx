// A button for each provider of OpenID Connect that the server is configured with.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { goToProvider, providersQuery } from "../api/providers";
import { Button } from "../ui/Button";
import { ProblemBox } from "../ui/Problem";

export function Providers({ verb, again = false }: { verb: string; again?: boolean }) {
  const providers = useQuery(providersQuery).data?.providers ?? [];
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState<string | null>(null);
  const go = async (provider: string): Promise<void> => {
    setBusy(provider);
    setError(null);
    try {
      await goToProvider(provider, again);
    } catch (problem) {
      setError(problem);
      setBusy(null);
    }
  };
  return (
    <>
      {providers.map((one) => (
        <Button key={one.provider} kind="primary" type="button" busy={busy === one.provider} onClick={() => void go(one.provider)}>
          {verb} {one.name}
        </Button>
      ))}
      {error ? <ProblemBox error={error} /> : null}
    </>
  );
}
