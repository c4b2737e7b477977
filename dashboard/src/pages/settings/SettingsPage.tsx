import { useQuery } from "@tanstack/react-query";
import { sessionQuery } from "../../api/session";
import { LOCAL_ZONE } from "../../lib/time";
import { prefer, type Theme, usePreferences, type Zone } from "../../lib/preferences";
import { Card, Facts, Page } from "../../ui/Page";
import { Choice } from "../../ui/Tabs";
import { Time } from "../../ui/Time";
import styles from "./Settings.module.css";

export function SettingsPage() {
  const { theme, zone, keys, compact } = usePreferences();
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
            <Choice<Zone> label="Times in" value={zone} options={[["utc", "UTC"], ["local", LOCAL_ZONE === "UTC" ? "Local (UTC)" : LOCAL_ZONE], ["job", "Zone of the job"]]} onChange={(next) => prefer({ zone: next })} />
          </div>
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
