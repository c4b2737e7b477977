-- stage: pre

-- What job files own: `owner` is the name that the files give themselves, `source` the file and the line, and `version`
-- the version of the object after it was applied last. A job with the
-- same id and another `generation` is another one.
create table mainspring.file_objects (
    tenant_id  int not null,
    kind       text not null,
    object_id  text not null,
    owner      text not null,
    source     text,
    version    int not null,
    generation int not null,
    applied_at timestamptz not null,
    applied_by text not null,
    primary key (tenant_id, kind, object_id)
);
create index file_objects_by_owner on mainspring.file_objects (tenant_id, owner, kind, object_id);
