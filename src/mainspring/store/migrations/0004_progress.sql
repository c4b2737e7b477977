-- Progress: the number of the last word of the attempt that runs, so that a late copy of an earlier one changes nothing.

alter table mainspring.runs add column progress_number integer;
