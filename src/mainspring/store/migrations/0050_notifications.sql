-- stage: pre

-- Where a tenant is told what has happened. settings: what may be shown.
create table mainspring.channels (
    tenant_id  int not null,
    name       text not null,
    kind       text not null,
    version    int not null default 1,
    settings   json not null,
    created_at timestamptz not null default clock_timestamp(),
    updated_at timestamptz not null default clock_timestamp(),
    updated_by text not null,
    primary key (tenant_id, name)
);

-- What may not be shown. Only what sends messages reads this table; lists and views read channels.
create table mainspring.channel_secrets (
    tenant_id int not null,
    name      text not null,
    secrets   json not null,
    primary key (tenant_id, name),
    foreign key (tenant_id, name) references mainspring.channels on delete cascade
);

-- Who is told of what. events: the kinds of events. channels: those of the rule and of its escalation.
create table mainspring.rules (
    tenant_id   int not null,
    name        text not null,
    version     int not null default 1,
    events      text[] not null,
    channels    text[] not null,
    rule        json not null,
    muted_until timestamptz,
    created_at  timestamptz not null default clock_timestamp(),
    updated_at  timestamptz not null default clock_timestamp(),
    updated_by  text not null,
    primary key (tenant_id, name)
);

-- Ends of runs and missed fires before seen_until have been compared with the rules. There is a row while there are
-- channels.
create table mainspring.notification_watermark (
    only_row   boolean primary key default true check (only_row),
    seen_until timestamptz not null
);

-- What has happened and is in no other table: lost workers, breakers, backfills and operations that ended. Written in the
-- transaction of the cause, where a rule wants it, and deleted when it has been compared with the rules.
create table mainspring.notable_events (
    event_id    bigint generated always as identity primary key,
    tenant_id   int not null,
    event       text not null,
    subject     text not null,
    job_id      text,
    task        text,
    queue       text,
    path        text,
    reason      text,
    happened_at timestamptz not null default clock_timestamp()
);

-- What a rule has to tell or has told of one subject. grp: the rule, or the channels of rules of jobs; for these, channels
-- has them. count: since opened_at. told_at: null until the first message. closed_at: it has recovered. due_at: when there
-- is something to do about it.
create table mainspring.alerts (
    tenant_id       int not null,
    grp             text not null,
    event           text not null,
    subject         text not null,
    channels        text[],
    job_id          text,
    item            json not null,
    opened_at       timestamptz not null,
    last_at         timestamptz not null,
    count           bigint not null,
    told_at         timestamptz,
    closed_at       timestamptz,
    acknowledged_at timestamptz,
    acknowledged_by text,
    escalated_at    timestamptz,
    due_at          timestamptz,
    primary key (tenant_id, grp, event, subject)
) with (fillfactor = 70);
create index alerts_due on mainspring.alerts (due_at);
create index alerts_of_job on mainspring.alerts (tenant_id, job_id) where job_id is not null;

-- When a group was told something last.
create table mainspring.alert_groups (
    tenant_id int not null,
    grp       text not null,
    told_at   timestamptz not null,
    primary key (tenant_id, grp)
);

-- Messages: those to send, those that were sent, and those that were given up. state: of domain/notify/states.py.
-- next_at: when it is sent, or, while a process sends it, when another one may. attempts: the fence of the sender.
create table mainspring.notifications (
    notification_id uuid primary key,
    tenant_id       int not null,
    channel         text not null,
    rule            text,
    state           smallint not null,
    attempts        int not null default 0,
    next_at         timestamptz not null,
    created_at      timestamptz not null default clock_timestamp(),
    ended_at        timestamptz,
    error           text,
    title           text not null,
    message         json not null,
    acknowledged_at timestamptz,
    acknowledged_by text
) with (fillfactor = 70);
create index notifications_newest on mainspring.notifications (tenant_id, notification_id);
create index notifications_to_send on mainspring.notifications (tenant_id, channel, next_at) where state = 1;
