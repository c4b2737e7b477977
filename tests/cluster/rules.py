"""All rules by their names in the list of guarantees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from tests.cluster import (
    rules_client,
    rules_events,
    rules_fire,
    rules_flows,
    rules_gates,
    rules_limits,
    rules_logs,
    rules_loss,
    rules_nominal,
    rules_run,
    rules_schedules,
    rules_unique,
    rules_waits,
)
from tests.cluster.history import History, Violation

Rule = Callable[[History], Iterator[str]]


def _all(*rules: Rule) -> Rule:
    return lambda history: chain.from_iterable(rule(history) for rule in rules)


RULES: dict[str, Rule] = {
    "S1": _all(
        rules_fire.s1_one_run_per_fire_time,
        rules_nominal.s1_one_run_per_nominal_time,
        rules_schedules.s1_a_schedule_makes_max_runs,
        rules_schedules.s1_a_fire_that_is_made_up_for_runs_once,
    ),
    "S2": _all(rules_fire.s2_no_phantom_fire, rules_nominal.s2_a_job_keeps_its_seed),
    "S3": rules_fire.s3_epochs_rise_and_fence,
    "S4": rules_run.s4_legal_steps_and_one_end,
    "S5": rules_run.s5_outcomes_of_the_current_holder,
    "S6": _all(rules_run.s6_no_two_at_once, rules_loss.s6_an_attempt_begins_once),
    "S7": _all(
        rules_client.s7_one_job_per_key,
        rules_client.s7_one_run_per_key_of_run_now,
        rules_client.s7_a_run_is_retried_once,
        rules_unique.s7_one_live_job_per_unique_key,
        rules_unique.s7_a_merged_submission_names_a_job_that_lived,
        rules_unique.s7_one_waiting_job_per_later_key,
    ),
    "S8": rules_client.s8_acknowledged_is_there_refused_is_not,
    "S9": _all(
        rules_flows.s9_a_step_starts_after_its_parents,
        rules_flows.s9_a_step_works_after_its_parents,
        rules_flows.s9_a_step_runs_once,
        rules_flows.s9_joins_count_exactly,
        rules_flows.s9_a_workflow_run_ends_with_its_steps,
    ),
    "S10": _all(
        rules_limits.s10_no_more_slots_than_allowed,
        rules_limits.s10_no_more_attempts_than_allowed,
        rules_limits.s10_strict_lines_go_one_after_another,
        rules_limits.s10_a_later_run_replaces_the_earlier_ones,
        rules_limits.s10_counts_are_exact,
        rules_gates.s10_no_more_starts_than_a_rate_allows,
        rules_gates.s10_no_more_runs_of_a_queue_than_allowed,
        rules_schedules.s10_no_more_runs_of_a_backfill_than_allowed,
    ),
    "S11": _all(rules_run.s11_after_a_cancel_nothing_begins, rules_run.s11_cancelled_when_the_last_process_is_gone),
    "S12": rules_logs.s12_a_log_is_a_prefix,
    "S14": rules_loss.s14_losses_are_counted_and_allowed,
    "S16": _all(
        rules_events.s16_an_acknowledged_event_is_stored_once,
        rules_events.s16_an_event_starts_each_job_once,
        rules_events.s16_batches_and_pauses_hold,
        rules_events.s16_events_of_a_key_start_in_order,
        rules_waits.s16_a_wait_begins_and_ends_once,
        rules_waits.s16_a_step_has_one_child,
        rules_waits.s16_a_sleep_is_neither_short_nor_long,
        rules_waits.s16_a_timeout_is_neither_short_nor_long,
        rules_waits.s16_an_event_ends_the_wait_for_it,
        rules_waits.s16_a_decision_counts_once,
    ),
    "L1": rules_fire.l1_fires_on_time,
    "L2": _all(rules_fire.l2_runs_and_missed_are_all_fires, rules_nominal.l2_a_change_loses_no_time_that_has_come),
    "L3": rules_run.l3_a_dead_workers_runs_are_requeued,
    "L4": rules_fire.l4_shards_are_owned_again,
    "L5": _all(rules_run.l5_nothing_is_left_at_rest, rules_limits.l5_nobody_waits_before_a_line_with_room),
    "L6": rules_client.l6_nothing_exits_by_itself,
    "L7": rules_run.l7_none_is_rescued_alive,
    "L8": rules_client.l8_drains_in_time,
}


def judge(history: History) -> list[Violation]:
    """Check every rule. Returns the violations as text."""
    return [Violation(name, words) for name, rule in RULES.items() for words in rule(history)]
