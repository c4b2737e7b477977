import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { Refused } from "./api/client";
import { overviewQuery } from "./api/queries";
import { sessionQuery } from "./api/session";
import { relaxWhileLive } from "./live/pace";
import { router } from "./router";

const client = new QueryClient({
  defaultOptions: {
    queries: { retry: retry, retryDelay: 2000, staleTime: 2000, refetchOnWindowFocus: true, networkMode: "always" },
    mutations: { networkMode: "always" },
  },
});

relaxWhileLive(client);
void begin();

/** Asks who is signed in, and for the first figures, while the files of the page are on their way. The page shows what went wrong. */
async function begin(): Promise<void> {
  await client.prefetchQuery(sessionQuery);
  if (location.pathname !== import.meta.env.BASE_URL || client.getQueryData(sessionQuery.queryKey) === undefined) return;
  const asked = new URLSearchParams(location.search);
  const [w, queue, task] = ["w", "queue", "task"].map((name) => asked.get(name) || undefined);
  await client.prefetchQuery(overviewQuery(w, queue, task));
}

/** A refusal is final. Silence and an overloaded server are not. A 401 asks who is signed in. */
function retry(count: number, error: Error): boolean {
  if (error instanceof Refused && error.status === 401) {
    void client.invalidateQueries({ queryKey: sessionQuery.queryKey }); // the shell shows it, and asks to sign in
    return false;
  }
  return count < 2 && (!(error instanceof Refused) || error.status === 0 || error.status >= 500);
}

export function App() {
  return (
    <QueryClientProvider client={client}>
      <RouterProvider router={router} context={{ client }} />
    </QueryClientProvider>
  );
}
