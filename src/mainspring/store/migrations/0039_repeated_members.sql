-- stage: pre
-- A rerun may repeat only those members of a map that did not succeed. maps: the places of the mapped steps of which it does.
alter table mainspring.flow_reruns add column maps int[];

-- origin: the earlier run of the step; what its other members have done counts here too. repeats: how many members run
-- again; null: all of them.
alter table mainspring.fanouts
    add column origin  uuid,
    add column repeats int;

-- Of a fan-out with `repeats`, a chunk has pairs of index and item, for those of its thousand indexes that run again.
-- position: how many members come before them.
alter table mainspring.fanout_items add column position int;
