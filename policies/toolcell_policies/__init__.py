"""What may run: facts in, a decision out.

Pure: no event loop, no process, no socket, and no file but its own data. The
one thing that looks at a file system, `check_path`, does so through a small
protocol, to gather a fact; `decide` takes only facts.
"""

from .decision import Decision, DecisionJson, Outcome, Reason, ReasonJson
from .engine import DISPLAY_BYTES_MAX, Facts, decide
from .paths import FileFacts, Filesystem, PathVerdict, RealFilesystem, check_path
from .plan import plan_hash
from .sensitive import (
    Protection,
    Role,
    SensitiveList,
    SensitiveRule,
    default_sensitive_list,
    parse_sensitive_list,
)
from .vocabulary import AccessMode, DangerLevel

__all__ = [
    "DISPLAY_BYTES_MAX",
    "AccessMode",
    "DangerLevel",
    "Decision",
    "DecisionJson",
    "Facts",
    "FileFacts",
    "Filesystem",
    "Outcome",
    "PathVerdict",
    "Protection",
    "RealFilesystem",
    "Reason",
    "ReasonJson",
    "Role",
    "SensitiveList",
    "SensitiveRule",
    "check_path",
    "decide",
    "default_sensitive_list",
    "parse_sensitive_list",
    "plan_hash",
]
