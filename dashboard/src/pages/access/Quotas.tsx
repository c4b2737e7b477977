// What a tenant may use at most, and how much of it is used. An instance administrator sees every tenant and sets quotas.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Gauge } from "lucide-react";
import { useState } from "react";
import { change, get } from "../../api/client";
import type { QuotaUse, TenantUsage, TenantView } from "../../api/schema";
import { sessionQuery, useMay } from "../../api/session";
import { bytes, count, percent } from "../../lib/format";
import type { Same } from "../../ui/AsCommand";
import { Button } from "../../ui/Button";
import { Confirm } from "../../ui/Dialog";
import { Field, Select } from "../../ui/Field";
import { Meter } from "../../ui/Meter";
import { Card, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { type Column, Table } from "../../ui/Table";
import { say } from "../../ui/Toasts";

const INSTANCE = "default";
const WORDS: Record<string, string> = {
  stored_jobs: "Stored jobs",
  submissions_per_second: "Submissions per second",
  runs_per_minute: "Starts of runs per minute",
  queued_runs: "Waiting runs",
  concurrent_runs: "Runs at once",
  payload_bytes: "Bytes of a payload",
  log_bytes_per_day: "Bytes of output per day",
  tokens: "Tokens",
  history_days: "Days of history",
};

export function Quotas({ tenants }: { tenants: TenantView[] }) {
  const own = useQuery(sessionQuery).data?.tenant ?? INSTANCE;
  const [chosen, setChosen] = useState<string | null>(null);
  const [setting, setSetting] = useState(false);
  const tenant = chosen ?? own;
  const may = useMay("tenants.set_quotas") && own === INSTANCE;
  const usage = useQuery({
    queryKey: ["usage", tenant],
    queryFn: ({ signal }) => get<TenantUsage>(`/v1/tenants/${encodeURIComponent(tenant)}/usage`, {}, signal),
    refetchInterval: 30_000,
  });
  return (
    <Card
      flush title={`Quotas of ${tenant}`}
      aside={may && usage.data ? <Button icon={<Gauge size={14} />} onClick={() => setSetting(true)}>Set quotas</Button> : undefined}
    >
      {tenants.length > 1 ? <Select label="Tenant" value={tenant} options={tenants.map((one) => [one.name, one.name])} onChange={(event) => setChosen(event.target.value)} /> : null}
      {usage.isPending ? (
        <Skeleton />
      ) : usage.data === undefined ? (
        <ProblemBox error={usage.error} retry={() => void usage.refetch()} />
      ) : (
        <Table label="Quotas" columns={COLUMNS} rows={usage.data.quotas} most={20} rowKey={(use) => use.quota} />
      )}
      {setting && usage.data ? <SetQuotas usage={usage.data} onClose={() => setSetting(false)} /> : null}
    </Card>
  );
}

const COLUMNS: Column<QuotaUse>[] = [
  { key: "quota", head: "Quota", phone: "first", grow: true, cell: (use) => WORDS[use.quota] ?? use.quota },
  { key: "used", head: "Used", align: "end", cell: (use) => (use.used === null ? "" : figure(use, use.used)) },
  { key: "limit", head: "Limit", align: "end", cell: (use) => (use.limit === null ? "no limit" : figure(use, use.limit)) },
  { key: "meter", head: <span className="sr">Share</span>, cell: (use) => <Share use={use} /> },
];

function Share({ use }: { use: QuotaUse }) {
  if (use.used === null || use.limit === null) return null;
  const used = Math.min(use.used, use.limit);
  return <Meter label={`Use of ${WORDS[use.quota] ?? use.quota}`} total={use.limit} good={use.near ? 0 : used} bad={use.near ? used : 0}>{use.near ? ` ${percent(use.used / use.limit)} used` : null}</Meter>;
}

function figure(use: QuotaUse, value: number): string {
  return use.quota.includes("bytes") ? bytes(value) : count(value);
}

function SetQuotas({ usage, onClose }: { usage: TenantUsage; onClose: () => void }) {
  const before = Object.fromEntries(usage.quotas.map((use) => [use.quota, use.limit === null ? "" : String(use.limit)]));
  const [given, setGiven] = useState(before);
  const client = useQueryClient();
  const renew = (): void => void client.invalidateQueries({ queryKey: ["usage"] });
  const changed = Object.entries(given).filter(([name, text]) => text.trim() !== before[name]);
  const body = Object.fromEntries(changed.map(([name, text]) => [name, text.trim() === "" ? null : Number(text)]));
  const path = `/v1/tenants/${encodeURIComponent(usage.tenant)}/quotas`;
  const same: Same = {
    command: ["tenant", "quotas", usage.tenant, ...changed.flatMap(([name, text]) => [`--${name.replaceAll("_", "-")}`, text.trim() || "none"])],
    method: "PUT", path, body, python: ["set_quotas", usage.tenant], named: body,
  };
  const act = async (): Promise<void> => {
    await change("PUT", path, usage.version, body);
    say(`The quotas of ${usage.tenant} are set.`);
    renew();
  };
  return (
    <Confirm title={`Set the quotas of ${usage.tenant}`} operation="tenants.set_quotas" verb="Set" act={act} onClose={onClose} onConflict={renew} same={same}>
      {usage.quotas.map((use) => (
        <Field
          key={use.quota} label={WORDS[use.quota] ?? use.quota} inputMode="numeric" placeholder="no limit" value={given[use.quota] ?? ""}
          onChange={(event) => setGiven({ ...given, [use.quota]: event.target.value })}
        />
      ))}
    </Confirm>
  );
}
