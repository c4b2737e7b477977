"""The ground floor: clocks, ids, settings, logging and the life of loops. Imports nothing of ours."""
