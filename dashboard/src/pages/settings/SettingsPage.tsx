import { useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { sessionQuery } from "../../api/session";
import { isZone, LOCAL_ZONE } from "../../lib/time";
import { prefer, type Theme, usePreferences, type Zone } from "../../lib/preferences";
import { Button } from "../../ui/Button";
import { Field } from "../../ui/Field";
import { Card, Facts, Page } from "../../ui/Page";
import { Choice } from "../../ui/Tabs";
import { Time } from "../../ui/Time";
import { OwnAccount } from "./OwnAccount";
import styles from "./Settings.module.css";

export function SettingsPage() {
  const { theme, zone, ownZone, keys, compact } = usePreferences();
  const session = useQuery(sessionQuery);
  return (
    <Page title="Settings" lead="They hold for this browser.">
      <Card title="Display">
        <div className={styles.rows}>
          <div>
            <span>Theme</span>
            <Choice<Theme> label="Theme" value={theme} options={[["system", "As the system"], ["light", "Light"], ["dark", "Dark"]]} onChange={(next) => prefer({ theme: next })} />
          </div>
          <div>
            <span>Times in</span>
            <Choice<Zone> label="Times in" value={zone} options={[["utc", "UTC"], ["local", LOCAL_ZONE === "UTC" ? "Local (UTC)" : LOCAL_ZONE], ["job", "Zone of the job"], ...(ownZone ? [[ownZone, ownZone] as [Zone, string]] : [])]} onChange={(next) => prefer({ zone: next })} />
          </div>
          <OwnZone />
          <div>
            <span>Rows</span>
            <Choice label="Rows" value={compact ? "compact" : "normal"} options={[["normal", "Normal"], ["compact", "Compact"]]} onChange={(next) => prefer({ compact: next === "compact" })} />
          </div>
          <div>
            <span>Keys</span>
            <Choice label="Keys" value={keys ? "on" : "off"} options={[["on", "On"], ["off", "Off"]]} onChange={(next) => prefer({ keys: next === "on" })} />
          </div>
        </div>
      </Card>
      {session.data?.user_id ? <OwnAccount /> : null}
      <Card title="Session">
        <Facts
          rows={[
            ["Signed in with", session.data?.name ?? ""],
            ["Role", session.data?.role ?? ""],
            ["Tenant", session.data?.tenant ?? ""],
            ["Since", <Time key="since" at={session.data?.signed_in_at} focusable />],
            ["Ends", <Time key="ends" at={session.data?.expires_at} focusable />],
          ]}
        />
      </Card>
    </Page>
  );
}

/** Any zone, beside those that are always there. */
function OwnZone() {
  const { ownZone } = usePreferences();
  const [typed, setTyped] = useState(ownZone);
  const [problem, setProblem] = useState<string | null>(null);
  const use = (event: FormEvent): void => {
    event.preventDefault();
    const name = typed.trim();
    const known = Intl.supportedValuesOf("timeZone").find((one) => one.toLowerCase() === name.toLowerCase()) ?? name;
    if (!isZone(known)) return setProblem("No such zone. Write one such as Europe/Berlin.");
    setProblem(null);
    setTyped(known);
    prefer({ zone: known, ownZone: known });
  };
  return (
    <form className={styles.zone} id="zone" onSubmit={use}>
      <Field label="Another zone" placeholder="Europe/Berlin" list="all-zones" value={typed} problem={problem} onChange={(event) => setTyped(event.target.value)} />
      <Button type="submit">Show times in it</Button>
      <datalist id="all-zones">
        {Intl.supportedValuesOf("timeZone").map((one) => (
          <option key={one} value={one} />
        ))}
      </datalist>
    </form>
  );
}
