-- stage: pre
-- The run was lost because the process of its worker ended by itself. Its next attempt begins without neighbours.
alter table mainspring.runs add column alone boolean;
