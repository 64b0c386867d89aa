"""What may run: facts in, a decision out.

Pure: no event loop, no process, no socket, and no file but its own data. The
one thing that looks at a file system, `check_path`, does so through a small
protocol, to gather a fact; `decide` takes only facts.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._effect_by_rules import judged_effects
    from ._passes import admits
    from .decision import Decision, DecisionJson, Outcome, Reason, ReasonJson
    from .effects import (
        SYSTEM_FOLDERS,
        Effect,
        EffectGround,
        EffectReason,
        EffectVerdicts,
        Trail,
        changed_git_keys,
        follow_link,
        judge_effects,
        names_a_program,
        runs_a_command,
    )
    from .engine import DISPLAY_BYTES_MAX, decide
    from .facts import Facts, RunState
    from .folders import HostFolders
    from .paths import FileFacts, Filesystem, PathVerdict, RealFilesystem, check_path
    from .phases import admits_transient_edit, is_edit_intent, phase_admits_tool
    from .plan import plan_hash
    from .policy import POLICIES, Policy
    from .sensitive import (
        Protection,
        Role,
        SensitiveList,
        SensitiveRule,
        default_sensitive_list,
        parse_sensitive_list,
    )
    from .vocabulary import (
        AccessMode,
        CostTier,
        DangerLevel,
        ExecutionCategory,
        Mode,
        Phase,
        Priority,
        SchemaLevel,
        TaskKind,
    )

# Loaded when asked for: a jail that runs a user's tool needs the vocabulary and nothing else.
_HOME = {
    "AccessMode": "vocabulary",
    "CostTier": "vocabulary",
    "DISPLAY_BYTES_MAX": "engine",
    "DangerLevel": "vocabulary",
    "Decision": "decision",
    "DecisionJson": "decision",
    "Effect": "effects",
    "EffectGround": "effects",
    "EffectReason": "effects",
    "EffectVerdicts": "effects",
    "Facts": "facts",
    "ExecutionCategory": "vocabulary",
    "FileFacts": "paths",
    "Filesystem": "paths",
    "HostFolders": "folders",
    "Mode": "vocabulary",
    "Outcome": "decision",
    "POLICIES": "policy",
    "PathVerdict": "paths",
    "Phase": "vocabulary",
    "Policy": "policy",
    "Priority": "vocabulary",
    "Protection": "sensitive",
    "RealFilesystem": "paths",
    "Reason": "decision",
    "ReasonJson": "decision",
    "Role": "sensitive",
    "RunState": "facts",
    "SYSTEM_FOLDERS": "effects",
    "SchemaLevel": "vocabulary",
    "SensitiveList": "sensitive",
    "SensitiveRule": "sensitive",
    "TaskKind": "vocabulary",
    "Trail": "effects",
    "admits": "_passes",
    "admits_transient_edit": "phases",
    "changed_git_keys": "effects",
    "check_path": "paths",
    "decide": "engine",
    "default_sensitive_list": "sensitive",
    "follow_link": "effects",
    "is_edit_intent": "phases",
    "judge_effects": "effects",
    "judged_effects": "_effect_by_rules",
    "parse_sensitive_list": "sensitive",
    "phase_admits_tool": "phases",
    "plan_hash": "plan",
    "names_a_program": "effects",
    "runs_a_command": "effects",
}

__all__ = [
    "DISPLAY_BYTES_MAX",
    "POLICIES",
    "SYSTEM_FOLDERS",
    "AccessMode",
    "CostTier",
    "DangerLevel",
    "Decision",
    "DecisionJson",
    "Effect",
    "EffectGround",
    "EffectReason",
    "EffectVerdicts",
    "ExecutionCategory",
    "Facts",
    "FileFacts",
    "Filesystem",
    "HostFolders",
    "Mode",
    "Outcome",
    "PathVerdict",
    "Phase",
    "Policy",
    "Priority",
    "Protection",
    "RealFilesystem",
    "Reason",
    "ReasonJson",
    "Role",
    "RunState",
    "SchemaLevel",
    "SensitiveList",
    "SensitiveRule",
    "TaskKind",
    "Trail",
    "admits",
    "admits_transient_edit",
    "changed_git_keys",
    "check_path",
    "decide",
    "default_sensitive_list",
    "follow_link",
    "is_edit_intent",
    "judge_effects",
    "judged_effects",
    "names_a_program",
    "parse_sensitive_list",
    "phase_admits_tool",
    "plan_hash",
    "runs_a_command",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
