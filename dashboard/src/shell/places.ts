// The pages that the side bar, the palette and the keys lead to.
import {
  Activity, AlarmClockOff, BookOpen, CalendarDays, CircleX, Gauge, Inbox, KeyRound, Layers, ListChecks, ListTodo, type LucideIcon, Server,
  Settings, Workflow, Wrench,
} from "lucide-react";

export interface Place {
  to: string;
  name: string;
  key: string;
  icon: LucideIcon;
  group: "Work" | "Trouble" | "System";
}

export const PLACES: Place[] = [
  { to: "/", name: "Overview", key: "o", icon: Gauge, group: "Work" },
  { to: "/jobs", name: "Jobs", key: "j", icon: ListChecks, group: "Work" },
  { to: "/runs", name: "Runs", key: "r", icon: Activity, group: "Work" },
  { to: "/workflows", name: "Workflows", key: "w", icon: Workflow, group: "Work" },
  { to: "/calendar", name: "Calendar", key: "c", icon: CalendarDays, group: "Work" },
  { to: "/failures", name: "Failures", key: "f", icon: CircleX, group: "Trouble" },
  { to: "/dead-letters", name: "Dead letters", key: "d", icon: Inbox, group: "Trouble" },
  { to: "/missed", name: "Missed fires", key: "m", icon: AlarmClockOff, group: "Trouble" },
  { to: "/operations", name: "Operations", key: "b", icon: ListTodo, group: "System" },
  { to: "/queues", name: "Queues", key: "q", icon: Layers, group: "System" },
  { to: "/workers", name: "Workers", key: "k", icon: Server, group: "System" },
  { to: "/limits", name: "Limits", key: "l", icon: Wrench, group: "System" },
  { to: "/access", name: "Tokens", key: "t", icon: KeyRound, group: "System" },
  { to: "/docs", name: "API", key: "a", icon: BookOpen, group: "System" },
  { to: "/settings", name: "Settings", key: "s", icon: Settings, group: "System" },
];
