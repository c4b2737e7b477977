// The map of pages. Each page is loaded when it is first opened. The address is the state of the page.
import type { QueryClient } from "@tanstack/react-query";
import {
  createRootRouteWithContext, createRoute, createRouter, type ErrorComponentProps, lazyRouteComponent, Link, redirect,
} from "@tanstack/react-router";
import { patiently } from "./lib/patiently";
import { only, parseSearch, stringifySearch } from "./lib/search";
import { Shell } from "./shell/Shell";
import { Empty, Page, Skeleton } from "./ui/Page";
import { ProblemBox } from "./ui/Problem";

const root = createRootRouteWithContext<{ client: QueryClient }>()({
  component: Shell,
  notFoundComponent: NotFound,
  errorComponent: Broken,
});

const routes = [
  createRoute({
    getParentRoute: () => root, path: "/", validateSearch: only("w", "queue", "task"),
    component: lazyRouteComponent(patiently(() => import("./pages/overview/OverviewPage")), "OverviewPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/jobs",
    validateSearch: only("q", "status", "latest", "health", "queue", "task", "type", "label", "owner", "created_by", "view", "after"),
    component: lazyRouteComponent(patiently(() => import("./pages/jobs/JobsPage")), "JobsPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/jobs/new", validateSearch: only("from", "edit"),
    component: lazyRouteComponent(patiently(() => import("./pages/job-form/JobFormPage")), "JobFormPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/jobs/$job", validateSearch: only("tab", "after", "w"),
    component: lazyRouteComponent(patiently(() => import("./pages/job/JobPage")), "JobPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/runs",
    validateSearch: only("status", "job", "task", "queue", "worker", "error", "label", "created_by", "payload", "w", "since", "until", "view", "after"),
    component: lazyRouteComponent(patiently(() => import("./pages/runs/RunsPage")), "RunsPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/runs/$run", validateSearch: only("tab", "attempt", "find", "at", "beside"),
    component: lazyRouteComponent(patiently(() => import("./pages/run/RunPage")), "RunPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/logs",
    validateSearch: only("text", "by", "job", "task", "queue", "worker", "status", "label", "w", "since", "until"),
    component: lazyRouteComponent(patiently(() => import("./pages/logs/LogsPage")), "LogsPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/workflows", validateSearch: only("q", "status", "after"),
    component: lazyRouteComponent(patiently(() => import("./pages/workflows/WorkflowsPage")), "WorkflowsPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/workflows/$workflow", validateSearch: only("after", "view", "step", "w", "from", "to"),
    component: lazyRouteComponent(patiently(() => import("./pages/workflows/WorkflowPage")), "WorkflowPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/workflows/$workflow/runs/$run",
    validateSearch: only("view", "step", "status", "open", "after"),
    component: lazyRouteComponent(patiently(() => import("./pages/workflow-run/WorkflowRunPage")), "WorkflowRunPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/approvals", validateSearch: only("of", "after"),
    component: lazyRouteComponent(patiently(() => import("./pages/approvals/ApprovalsPage")), "ApprovalsPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/events", validateSearch: only("name", "key", "after"),
    component: lazyRouteComponent(patiently(() => import("./pages/events/EventsPage")), "EventsPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/sources", validateSearch: only("after"),
    component: lazyRouteComponent(patiently(() => import("./pages/events/SourcesPage")), "SourcesPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/events/$event",
    component: lazyRouteComponent(patiently(() => import("./pages/events/EventPage")), "EventPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/upcoming", validateSearch: only("range", "at"),
    component: lazyRouteComponent(patiently(() => import("./pages/upcoming/UpcomingPage")), "UpcomingPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/calendar", // its address before, in links that people keep
    beforeLoad: ({ search }) => {
      throw redirect({ to: "/upcoming", search: search as never, replace: true });
    },
  }),
  createRoute({
    getParentRoute: () => root, path: "/calendars", validateSearch: only("create", "year", "after"),
    component: lazyRouteComponent(patiently(() => import("./pages/calendars/CalendarsPage")), "CalendarsPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/calendars/$calendar", validateSearch: only("year", "edit"),
    component: lazyRouteComponent(patiently(() => import("./pages/calendars/CalendarPage")), "CalendarPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/failures", validateSearch: only("w", "since", "task", "queue", "job"),
    component: lazyRouteComponent(patiently(() => import("./pages/failures/FailuresPage")), "FailuresPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/failures/$fingerprint", validateSearch: only("w", "since"),
    component: lazyRouteComponent(patiently(() => import("./pages/failure/FailurePage")), "FailurePage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/dead-letters",
    validateSearch: only("job", "task", "queue", "error", "w", "since", "until", "after"),
    component: lazyRouteComponent(patiently(() => import("./pages/dead-letters/DeadLettersPage")), "DeadLettersPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/missed", validateSearch: only("q", "job", "reason", "after"),
    component: lazyRouteComponent(patiently(() => import("./pages/missed/MissedPage")), "MissedPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/notifications", validateSearch: only("tab", "status", "after"),
    component: lazyRouteComponent(patiently(() => import("./pages/notifications/NotificationsPage")), "NotificationsPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/operations", validateSearch: only("tab", "op", "backfill", "job", "state", "after"),
    component: lazyRouteComponent(patiently(() => import("./pages/operations/OperationsPage")), "OperationsPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/queues", validateSearch: only("q"),
    component: lazyRouteComponent(patiently(() => import("./pages/queues/QueuesPage")), "QueuesPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/queues/$queue", validateSearch: only("w"),
    component: lazyRouteComponent(patiently(() => import("./pages/queues/QueuePage")), "QueuePage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/workers/$worker",
    component: lazyRouteComponent(patiently(() => import("./pages/workers/WorkerPage")), "WorkerPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/workers", validateSearch: only("q", "state"),
    component: lazyRouteComponent(patiently(() => import("./pages/workers/WorkersPage")), "WorkersPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/limits", validateSearch: only("q", "after", "limit"),
    component: lazyRouteComponent(patiently(() => import("./pages/limits/LimitsPage")), "LimitsPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/access",
    component: lazyRouteComponent(patiently(() => import("./pages/access/AccessPage")), "AccessPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/people",
    component: lazyRouteComponent(patiently(() => import("./pages/people/PeoplePage")), "PeoplePage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/audit", validateSearch: only("who", "operation", "kind", "id", "after"),
    component: lazyRouteComponent(patiently(() => import("./pages/audit/AuditPage")), "AuditPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/secrets",
    component: lazyRouteComponent(patiently(() => import("./pages/secrets/SecretsPage")), "SecretsPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/docs", validateSearch: only("q", "op", "status"),
    component: lazyRouteComponent(patiently(() => import("./pages/docs/DocsPage")), "DocsPage"),
  }),
  createRoute({
    getParentRoute: () => root, path: "/settings",
    component: lazyRouteComponent(patiently(() => import("./pages/settings/SettingsPage")), "SettingsPage"),
  }),
  ...(import.meta.env.MODE === "production"
    ? []
    : [
        createRoute({
          getParentRoute: () => root, path: "/patterns",
          component: lazyRouteComponent(patiently(() => import("./pages/patterns/PatternsPage")), "PatternsPage"),
        }),
      ]),
];

export const router = createRouter({
  routeTree: root.addChildren(routes),
  basepath: "/ui",
  parseSearch,
  stringifySearch,
  scrollRestoration: true,
  defaultErrorComponent: Broken, // in the place of the page, so that the top bar still says how things are
  defaultPendingComponent: Waiting,
  defaultPreload: "intent",
  defaultPreloadStaleTime: 0,
  context: { client: undefined as unknown as QueryClient },
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}

function Broken({ error, reset }: ErrorComponentProps) {
  return (
    <Page title="Problem">
      <ProblemBox error={error} retry={reset} />
    </Page>
  );
}

/** The files of the page have not come yet. */
function Waiting() {
  return (
    <Page title="Loading">
      <Skeleton />
    </Page>
  );
}

function NotFound() {
  return (
    <Page title="No such page">
      <Empty title="There is no page at this address.">
        <Link to="/">To the overview</Link>
      </Empty>
    </Page>
  );
}
