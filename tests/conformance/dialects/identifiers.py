"""Every public name, by where it is to be had, and the test that would fail if it did nothing.

Data: API.md's import lists and CATALOGUE.md, name by name. `test_identifiers.py` holds it to be
true. A program of a dialect is named by its test, and may mention the name in its own sources.
"""

from __future__ import annotations

from typing import Final

_P: Final = "tests/conformance/dialects/test_phases.py::test_"
_M: Final = "tests/conformance/dialects/test_metadata.py::test_"
_S: Final = "tests/conformance/dialects/test_settlement.py::test_"
_I: Final = "tests/conformance/dialects/test_identifiers.py::test_"
_JAIL: Final = "tests/jail/"
_UNIT: Final = "tests/unit/toolcell/"

_IN_ORDER = f"{_P}an_edit_task_goes_through_its_phases_under_the_gate"
_RESULTS = f"{_P}a_result_says_what_its_handler_said_and_what_was_observed"
_PHASES = f"{_P}each_phase_offers_what_it_admits_and_an_edit_begins_the_editing"
_TRANSIENT = f"{_P}an_investigations_edits_are_kept_until_they_are_taken_back"
_COSTS = f"{_M}tools_are_filtered_by_what_they_cost"
_STATES = f"{_M}tools_are_switched_on_and_off_by_name_and_alias"
_SCHEMAS = f"{_M}schemas_come_in_each_providers_shape_and_at_each_level"
_WRONG = f"{_M}what_is_wrong_with_arguments_is_said_in_the_known_words"
_CHOSEN = f"{_M}a_request_chooses_its_tools"
_INDEX = f"{_M}the_index_says_what_tools_say_and_generates_the_rest"
_CALLS = f"{_M}calls_end_in_the_words_of_the_dialect"
_GATED = f"{_M}paths_are_judged_before_a_handler_runs"
_HOOKS = f"{_M}hooks_stand_before_and_after_each_call"
_MODES = f"{_M}a_mode_is_a_ceiling"
_TOGETHER = f"{_M}calls_of_a_turn_run_together_unless_they_conflict"
_WHY = f"{_M}a_decision_says_why_and_a_person_decides"
_SCOPES = f"{_S}registrations_stack_and_closing_one_reveals_the_next"
_SHOWN = f"{_S}a_request_settles_with_what_it_was_shown"
_GROUPS = f"{_S}groups_name_their_tools_and_deferred_ones_are_found_by_words"
_LARGE = f"{_S}a_large_value_is_summarised_and_read_back_whole"
_LONG = f"{_S}a_long_text_keeps_its_ends_within_the_tools_own_bound"
_PICTURE = f"{_S}a_picture_and_words_of_its_own_are_what_a_model_is_shown"
_ENFORCED = f"{_S}an_output_schema_is_enforced_before_anything_is_kept"
_MIDCALL = f"{_S}a_handler_asks_mid_call_and_what_was_answered_is_on_record"
_WATCHED = f"{_S}a_call_is_watched_while_it_runs"
_RULE = f"{_S}a_rule_about_an_action_hides_and_denies_every_tool_that_shares_it"

_LOOPS = f"{_JAIL}test_every_loop.py::test_"
_PLANS = f"{_LOOPS}a_person_is_asked_in_the_callers_own_way"
_ENDINGS = f"{_JAIL}test_endings.py::test_"
_EFFECTS = f"{_JAIL}test_effects.py::test_"
_APPROVERS = f"{_UNIT}test_approval.py::test_"

TESTED: Final[dict[str, dict[str, str]]] = {
    "toolcell": {
        "AccessMode": _WHY,
        "Answer": f"{_P}a_person_is_asked_by_tier_with_the_arguments",
        "Answer.once": f"{_P}a_person_is_asked_by_tier_with_the_arguments",
        "Answer.reject": _WHY,
        "Answer.remember": f"{_P}a_person_is_asked_by_tier_with_the_arguments",
        "Answer.stop": f"{_P}to_terminate_is_a_proposal_of_a_handler_or_of_a_person",
        "ApprovalRequest": _MIDCALL,
        "BaseTool": _CALLS,
        "BaseTool.cost_tier": _INDEX,
        "BaseTool.execute": _CALLS,
        "BaseTool.is_idempotent": _INDEX,
        "BaseTool.metadata": _INDEX,
        "BaseTool.to_schema": _SCHEMAS,
        "BaseTool.validate_parameters": _WRONG,
        "BaseTool.validate_parameters_detailed": _WRONG,
        "BlockingExecutor": f"{_S}plain_code_has_the_same_registry_and_results",
        "CallContext": _MODES,
        "CostTier": _COSTS,
        "CostTier.weight": _COSTS,
        "DangerLevel": _WHY,
        "Decision": _WHY,
        "ExecutionCategory": _TOGETHER,
        "ExecutionCategory.conflicts_with": _TOGETHER,
        "Executor": _CALLS,
        "Executor.call": _CALLS,
        "Executor.call_many": _TOGETHER,
        "Executor.check": _WHY,
        "Executor.prepare": _PLANS,
        "Executor.resume": _PLANS,
        "Executor.snapshot": _MODES,
        "Executor.stream": _WATCHED,
        "Failure": f"{_I}every_failure_has_a_kind_that_a_test_sees",
        "Hook": _HOOKS,
        "Limits": _CALLS,
        "Mode": _MODES,
        "Network": _CALLS,
        "Network.host": f"{_JAIL}test_levels_executor.py::test_an_answer_binds_to_the_jail",
        "Network.loopback": _CALLS,
        "Network.none": _WHY,
        "Policy": _WHY,
        "Priority": _INDEX,
        "ReadPath": _GATED,
        "Registration": _SCOPES,
        "Registration.close": _SCOPES,
        "RunDeps": _RESULTS,
        "SchemaLevel": _SCHEMAS,
        "Snapshot": _SHOWN,
        "Snapshot.definitions": _SHOWN,
        "Snapshot.search": _GROUPS,
        "Snapshot.settle": _SHOWN,
        "Tool": _ENFORCED,
        "Tool.make": _ENFORCED,
        "Tool.to_schema": (
            f"{_UNIT}test_validation_detail.py::test_a_tool_tells_its_schema_at_each_level"
        ),
        "Tool.validate_parameters": _WRONG,
        "Tool.validate_parameters_detailed": (
            f"{_UNIT}test_validation_detail.py::"
            "test_valid_parameters_are_valid_for_the_tool_and_its_record_alike"
        ),
        "ToolCall": _SHOWN,
        "ToolDefinition": _PHASES,
        "ToolDefinition.escalation": _PHASES,
        "ToolDefinition.paths": _IN_ORDER,
        "ToolDefinition.permission_tier": f"{_P}a_person_is_asked_by_tier_with_the_arguments",
        "ToolDefinition.phases": _PHASES,
        "ToolError": _CALLS,
        "ToolFailure": _TRANSIENT,
        "ToolMetadata": _INDEX,
        "ToolMetadataRegistry": _INDEX,
        "ToolMetadataRegistry.get_by_keyword": _INDEX,
        "ToolMetadataRegistry.get_instance": _INDEX,
        "ToolMetadataRegistry.get_metadata": _INDEX,
        "ToolMetadataRegistry.get_statistics": _INDEX,
        "ToolMetadataRegistry.get_tools_by_category": _INDEX,
        "ToolMetadataRegistry.get_tools_matching_text": _INDEX,
        "ToolMetadataRegistry.needs_reindex": _INDEX,
        "ToolMetadataRegistry.refresh_from_tools": _INDEX,
        "ToolRegistry": _COSTS,
        "ToolRegistry.active_for_phase": _PHASES,
        "ToolRegistry.admitted_for": _PHASES,
        "ToolRegistry.disable_tool": _STATES,
        "ToolRegistry.enable_tool": _STATES,
        "ToolRegistry.get": _STATES,
        "ToolRegistry.get_cost_summary": _COSTS,
        "ToolRegistry.get_tool_schemas": _SCHEMAS,
        "ToolRegistry.get_tool_states": _STATES,
        "ToolRegistry.get_tools_by_cost": _COSTS,
        "ToolRegistry.is_tool_enabled": _STATES,
        "ToolRegistry.list_tools": _STATES,
        "ToolRegistry.register": _SCOPES,
        "ToolRegistry.register_after_hook": _HOOKS,
        "ToolRegistry.register_before_hook": _HOOKS,
        "ToolRegistry.select_tools": _CHOSEN,
        "ToolRegistry.set_tool_states": _STATES,
        "ToolResult": _RESULTS,
        "ToolResult.as_basic": _CALLS,
        "ToolResult.as_phase": _RESULTS,
        "ToolResult.as_settled": _PICTURE,
        "ToolResult.ok": f"{_UNIT}test_results.py::test_ok_is_success_and_an_exit_code_of_zero",
        "ToolRuntime": _IN_ORDER,
        "ToolRuntime.execute": _IN_ORDER,
        "ToolRuntime.verify": _TRANSIENT,
        "ToolValidationResult": _WRONG,
        "ToolValidationResult.errors": _WRONG,
        "ToolValidationResult.invalid_params": _WRONG,
        "ToolValidationResult.valid": _WRONG,
        "WritePath": _GATED,
        "admits_transient_edit": _TRANSIENT,
        "is_edit_intent": _PHASES,
        "phase_admits_tool": _PHASES,
        "tool": _CALLS,
    },
    "toolcell.approval": {
        "ask_terminal": f"{_APPROVERS}the_terminal_is_asked_only_when_it_is_meant",
        "deny_all": (f"{_APPROVERS}case_35_where_nobody_is_there_the_answer_is_nobodys"),
        "from_callback": f"{_P}a_person_is_asked_by_tier_with_the_arguments",
        "unsafe_approve_all": f"{_M}what_the_machine_cannot_do_is_neither_shown_nor_called",
    },
    "toolcell.context": {
        "HandlerContext": _MIDCALL,
        "HandlerContext.permission": _MIDCALL,
        "HandlerContext.progress": _WATCHED,
    },
    "toolcell.events": {
        "Answered": _WATCHED,
        "Asked": _WATCHED,
        "Event": f"{_I}the_typed_program_uses_every_public_name",
        "Output": _WATCHED,
        "Progress": _WATCHED,
        "Started": f"{_JAIL}test_stream.py::test_"
        "output_is_seen_while_the_handler_runs_and_the_result_is_as_ever",
    },
    "toolcell.results": {
        "Effects": f"{_JAIL}test_everyday.py::test_a_nonzero_exit_keeps_what_was_done",
        "Retained": f"{_UNIT}test_retained.py::test_retaining_is_not_cut_off_by_a_cancel",
        "Truncation": f"{_UNIT}test_bounding.py::test_one_giant_line_is_cut_between_characters",
        "Verification.ok": _TRANSIENT,
        "Verification.text": _TRANSIENT,
    },
    "toolcell_sandbox": {
        "run_in_jail": f"{_JAIL}test_channel.py::test_who_asks_for_no_line_has_none",
    },
}
"""By module: each name, dotted below a class, and its test."""

FAILURES: Final[dict[str, str]] = {
    "ApprovalRejected": _WHY,
    "ApprovalTimeout": f"{_JAIL}test_executor.py::test_nobody_answers_in_time",
    "ApprovalUnavailable": _IN_ORDER,
    "Cancelled": f"{_JAIL}test_cli.py::test_a_cancelled_run_prints_its_result",
    "CommitConflict": f"{_EFFECTS}a_person_who_saves_while_it_is_reviewed_wins",
    "ConfinementFailed": f"{_JAIL}test_submounts.py::test_a_mount_inside_is_refused_by_name",
    "CpuTimeExceeded": f"{_ENDINGS}processor_time_split_over_forks_counts_together",
    "Crashed": f"{_ENDINGS}each_crash_point_is_typed_with_its_stage",
    "Denied": _IN_ORDER,
    "DiskExceeded": f"{_ENDINGS}a_full_scratch_is_disk_exceeded",
    "OutputExceeded": f"{_ENDINGS}a_flood_ends_the_call_only_where_the_caller_asked_for_it",
    "EffectsRefused": (
        f"{_JAIL}test_transaction_attacks.py::"
        "test_a_forbidden_name_is_refused_however_it_is_spelled"
    ),
    "EffectsRejected": f"{_EFFECTS}a_no_after_the_run_keeps_nothing",
    "Exception": f"{_ENDINGS}what_a_handler_raises_has_one_documented_ending",
    "ExecutorError": f"{_JAIL}test_executor.py::test_an_executor_that_is_not_open_runs_nothing",
    "Exited": f"{_ENDINGS}what_a_handler_raises_has_one_documented_ending",
    "FileSizeExceeded": f"{_ENDINGS}a_file_past_its_limit_is_typed_for_handlers_and_commands",
    "HookFailed": _HOOKS,
    "InvalidArguments": _CALLS,
    "InvalidOutput": _ENFORCED,
    "MemoryExceeded": f"{_JAIL}test_levels.py::test_memory_is_bounded_wherever_it_is",
    "NotAdmitted": _IN_ORDER,
    "ProcessesExceeded": f"{_JAIL}test_cases.py::test_the_process_cap_binds",
    "ProtocolError": f"{_ENDINGS}a_broken_frame_is_a_protocol_error_naming_the_rule",
    "SyscallBlocked": (
        f"{_JAIL}test_levels.py::test_a_call_of_another_machine_ends_the_call_and_is_named"
    ),
    "Timeout": _CALLS,
    "ToolDisabled": _GROUPS,
    "ToolError": _TRANSIENT,
    "ToolStale": _SHOWN,
    "ToolUnavailable": f"{_M}what_the_machine_cannot_do_is_neither_shown_nor_called",
    "UnknownTool": _SCOPES,
}
"""Each member of `toolcell.results.Failure`, and a test in which a call ends so."""

_CACHED = f"{_M}an_idempotent_call_is_answered_again_until_something_changed"
_THERE = f"{_M}what_the_machine_cannot_do_is_neither_shown_nor_called"
_ASKED = f"{_P}a_person_is_asked_by_tier_with_the_arguments"
_CEILING = f"{_JAIL}test_approvals.py::test_a_ceiling_is_named_with_what_would_admit_the_call"
_GRANTS = f"{_JAIL}test_grants.py::test_"

PARAMETERS: Final[dict[str, dict[str, str]]] = {
    "tool": {
        "name": _CALLS,
        "aliases": _CALLS,
        "cost_tier": _COSTS,
        "category": _INDEX,
        "keywords": _CHOSEN,
        "use_cases": _INDEX,
        "examples": _INDEX,
        "priority_hints": _INDEX,
        "priority": _CHOSEN,
        "access_mode": _WHY,
        "danger_level": _WHY,
        "stages": _CHOSEN,
        "task_types": _CHOSEN,
        "mandatory_keywords": _CHOSEN,
        "progress_params": _INDEX,
        "execution_category": _TOGETHER,
        "availability_check": _THERE,
        "limits": _CALLS,
        "network": _CALLS,
        "output_model": _CALLS,
        "is_idempotent": _CACHED,
        "timeout": _CALLS,
    },
    "ToolDefinition": {
        "name": _PHASES,
        "description": _PHASES,
        "input_model": _IN_ORDER,
        "handler": _IN_ORDER,
        "phases": _PHASES,
        "permission_tier": _ASKED,
        "paths": _IN_ORDER,
        "escalation": _PHASES,
    },
    "Tool.make": {
        "description": _SHOWN,
        "input": _SHOWN,
        "output": _ENFORCED,
        "execute": _ENFORCED,
        "to_model_output": _PICTURE,
    },
    "ToolRegistry.register": {
        "enabled": _GROUPS,
        "group": _GROUPS,
        "deferred": _GROUPS,
        "placement": _SCOPES,
    },
    "ToolRegistry.get_tool_schemas": {
        "only_enabled": (
            f"{_UNIT}test_registry.py::"
            "test_schemas_in_other_levels_and_dialects_are_asked_for_by_name"
        ),
        "level": _SCHEMAS,
        "dialect": _SCHEMAS,
    },
    "ToolRegistry.select_tools": {
        "stage": _CHOSEN,
        "task_type": _CHOSEN,
        "max_cost": _CHOSEN,
        "limit": _CHOSEN,
    },
    "ToolRegistry.register_before_hook": {
        "critical": _HOOKS,
        "name": _HOOKS,
        "description": _HOOKS,
    },
    "Hook": {
        "callback": _HOOKS,
        "name": _HOOKS,
        "critical": _HOOKS,
        "description": _HOOKS,
    },
    "RunDeps": {
        "workspace": _RESULTS,
        "phase": _RESULTS,
        "task_kind": _PHASES,
        "extra": _RESULTS,
        "approver": _ASKED,
    },
    "CallContext": {
        "session_id": _MIDCALL,
        "agent_id": _MIDCALL,
        "message_id": _MIDCALL,
        "phase": _CEILING,
        "task_kind": _CEILING,
        "mode": _MODES,
        "tier": _CEILING,
    },
    "Executor": {
        "tools": _CALLS,
        "workspace": _CALLS,
        "policy": _RULE,
        "approver": _WHY,
        "mode": f"{_JAIL}test_approvals.py::test_what_is_shown_is_what_is_admitted",
        "isolation": (
            f"{_JAIL}test_levels_executor.py::test_hardened_is_held_or_refused_with_what_helps"
        ),
        "limits": f"{_JAIL}test_approvals.py::test_human_time_is_not_the_calls_time",
        "network": _WHY,
        "workspace_mode": (
            f"{_JAIL}test_levels_executor.py::test_direct_gives_a_tool_that_reads_nothing_to_write"
        ),
        "review": f"{_EFFECTS}a_no_after_the_run_keeps_nothing",
        "read": f"{_GRANTS}a_folder_granted_for_reading_is_read_by_every_tool_and_written_by_none",
        "write": f"{_GRANTS}a_folder_granted_for_writing_is_written_and_said_so",
        "env": f"{_GRANTS}a_variable_is_granted_by_name_and_no_other",
        "waive": f"{_JAIL}test_levels_executor.py::test_a_waived_mask_is_asked_about_and_runs",
        "deps": _MIDCALL,
        "state_dir": _CALLS,
        "max_concurrency": (
            f"{_JAIL}test_attacks.py::"
            "test_a_file_that_became_a_link_while_the_call_waited_is_not_read"
        ),
        "cache_s": _CACHED,
        "retries": f"{_JAIL}test_turns.py::test_only_what_does_the_same_twice_is_tried_again",
    },
}
"""What a name of `toolcell` is called with: each parameter, and its test."""
