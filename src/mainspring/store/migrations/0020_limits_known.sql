-- stage: post
-- The servers take this migration as the sign that no older server is left (limits.sql, limits_known): that one would end
-- a limited run and keep its slot.
drop table mainspring.limit_slots;
