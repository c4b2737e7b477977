import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { LogOut, Moon, Search, Sun } from "lucide-react";
import { sessionQuery, signOut } from "../api/session";
import { isDark, prefer, usePreferences } from "../lib/preferences";
import { clockTime, LOCAL_ZONE, offset, zoneOf } from "../lib/time";
import { type Link, useBeat } from "../live/beat";
import { useNow } from "../live/clock";
import { Button } from "../ui/Button";
import styles from "./TopBar.module.css";

export function TopBar({ onSearch }: { onSearch: () => void }) {
  usePreferences();
  const dark = isDark();
  return (
    <header className={styles.bar}>
      <button type="button" className={styles.search} onClick={onSearch}>
        <Search size={14} aria-hidden="true" />
        <span className={styles.searchText}>Search jobs, runs, pages</span>
        <kbd>Ctrl-K</kbd>
      </button>
      <span className={styles.space} />
      <Live />
      <ZoneSwitch />
      <Button
        kind="quiet"
        icon={dark ? <Sun size={16} /> : <Moon size={16} />}
        aria-label={dark ? "Light theme" : "Dark theme"}
        title={dark ? "Light theme" : "Dark theme"}
        onClick={() => prefer({ theme: dark ? "light" : "dark" })}
      />
      <Who />
    </header>
  );
}

const HOW: Record<Link, string> = {
  live: "The server tells this page what changes.",
  polling: "There is no stream of changes; this page asks every few seconds.",
};

/** Whether what is shown is live, and since when it is not. */
function Live() {
  const { stale, heardAt, link } = useBeat();
  const { zone } = usePreferences();
  const now = useNow();
  if (stale)
    return (
      <span className={styles.stale} role="status">
        <span className={styles.off} aria-hidden="true" /> Not live since {clockTime(heardAt, zoneOf(zone))}{" "}
        {offset(heardAt, zoneOf(zone))}
      </span>
    );
  const age = Math.max(0, Math.round((now - heardAt) / 1000));
  return (
    <span className={styles.live} title={`${HOW[link]} Heard from the server ${age} s ago.`}>
      <span className={link === "live" ? styles.on : styles.polls} aria-hidden="true" />{" "}
      <span className={styles.liveText}>{link}</span>
    </span>
  );
}

const OTHER = "another";

function ZoneSwitch() {
  const { zone, ownZone } = usePreferences();
  const navigate = useNavigate();
  const choose = (next: string): void => (next === OTHER ? void navigate({ to: "/settings", hash: "zone" }) : prefer({ zone: next }));
  return (
    <select className={styles.zone} aria-label="Time zone" value={zone} onChange={(event) => choose(event.target.value)}>
      <option value="utc">UTC</option>
      <option value="local">{LOCAL_ZONE === "UTC" ? "Local (UTC)" : LOCAL_ZONE}</option>
      <option value="job">Zone of the job</option>
      {ownZone ? <option value={ownZone}>{ownZone}</option> : null}
      <option value={OTHER}>Another zone…</option>
    </select>
  );
}

function Who() {
  const { data } = useQuery(sessionQuery);
  const client = useQueryClient();
  const leave = async (): Promise<void> => {
    await signOut();
    client.clear();
    location.assign(import.meta.env.BASE_URL);
  };
  return (
    <span className={styles.who}>
      <span className={styles.name} title={data ? `${data.role} of ${data.tenant}` : undefined}>
        {data?.name}
      </span>
      <Button kind="quiet" icon={<LogOut size={16} />} aria-label="Sign out" title="Sign out" onClick={() => void leave()} />
    </span>
  );
}
