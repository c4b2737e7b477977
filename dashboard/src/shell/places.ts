// The pages that the side bar, the palette and the keys lead to.
import { useQuery } from "@tanstack/react-query";
import {
  Activity, AlarmClockOff, Bell, BookOpen, CalendarDays, CalendarOff, CircleX, FileText, Gauge, Inbox, KeyRound, Layers, ListChecks, ListTodo, LockKeyhole, type LucideIcon,
  ScrollText, Server, Settings, UserCheck, Users, Workflow, Wrench, Zap,
} from "lucide-react";
import { sessionQuery } from "../api/session";

export interface Place {
  to: string;
  name: string;
  key: string;
  icon: LucideIcon;
  group: "Work" | "Trouble" | "System";
  /** What the server calls it to read the page, where not everybody may. */
  needs?: string;
}

export const PLACES: Place[] = [
  { to: "/", name: "Overview", key: "o", icon: Gauge, group: "Work" },
  { to: "/jobs", name: "Jobs", key: "j", icon: ListChecks, group: "Work" },
  { to: "/runs", name: "Runs", key: "r", icon: Activity, group: "Work" },
  { to: "/logs", name: "Logs", key: "i", icon: FileText, group: "Work" },
  { to: "/workflows", name: "Workflows", key: "w", icon: Workflow, group: "Work" },
  { to: "/approvals", name: "Waiting for you", key: "y", icon: UserCheck, group: "Work" },
  { to: "/events", name: "Events", key: "v", icon: Zap, group: "Work" },
  { to: "/upcoming", name: "Upcoming fires", key: "c", icon: CalendarDays, group: "Work" },
  { to: "/calendars", name: "Calendars", key: "h", icon: CalendarOff, group: "Work" },
  { to: "/failures", name: "Failures", key: "f", icon: CircleX, group: "Trouble" },
  { to: "/dead-letters", name: "Dead letters", key: "d", icon: Inbox, group: "Trouble" },
  { to: "/missed", name: "Missed fires", key: "m", icon: AlarmClockOff, group: "Trouble" },
  { to: "/notifications", name: "Notifications", key: "n", icon: Bell, group: "Trouble" },
  { to: "/operations", name: "Operations", key: "b", icon: ListTodo, group: "System" },
  { to: "/queues", name: "Queues", key: "q", icon: Layers, group: "System" },
  { to: "/workers", name: "Workers", key: "k", icon: Server, group: "System" },
  { to: "/limits", name: "Limits", key: "l", icon: Wrench, group: "System" },
  { to: "/access", name: "Tokens", key: "t", icon: KeyRound, group: "System" },
  { to: "/people", name: "People", key: "p", icon: Users, group: "System", needs: "users.list" },
  { to: "/audit", name: "Audit", key: "u", icon: ScrollText, group: "System", needs: "audit.list" },
  { to: "/secrets", name: "Secrets", key: "e", icon: LockKeyhole, group: "System" },
  { to: "/docs", name: "API", key: "a", icon: BookOpen, group: "System" },
  { to: "/settings", name: "Settings", key: "s", icon: Settings, group: "System" },
];

/** Those that the role may read. */
export function usePlaces(): Place[] {
  const session = useQuery(sessionQuery).data;
  return PLACES.filter((place) => place.needs === undefined || session === undefined || session.operations.includes(place.needs));
}
