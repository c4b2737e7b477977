-- stage: pre

-- words: a filter of the words in the chunk (domain/log_words.py), so that a search reads few chunks. Null: the chunk
-- may contain any word, as those of earlier versions, large ones, and those that end within a line. lane_id: the queue
-- and task of the run; null if an earlier version stored the chunk.
alter table mainspring.log_chunks add column words bytea, add column lane_id int;
alter table mainspring.log_chunks alter column words set storage external;
