"""Receipt and usage, as they are printed."""

from __future__ import annotations

import json
import types

from toolcell_sandbox.outcome import Receipt, Usage

HELD = {"tree_killed": "pid namespace", "fds_closed": "close_range"}


def test_a_receipt_without_proof_claims_nothing() -> None:
    """Partial confinement that looks like the whole is worse than none."""
    assert Receipt().to_json() == {"isolation": "partial", "held": {}, "waived": []}


def test_a_receipt_is_json_whatever_mapping_it_holds() -> None:
    """It is printed by `--json` and kept in the log."""
    receipt = Receipt(held=types.MappingProxyType(HELD), waived=("net_blocked",))
    said = json.loads(json.dumps(receipt.to_json()))
    assert said == {"isolation": "partial", "held": HELD, "waived": ["net_blocked"]}


def test_usage_is_rounded_and_says_what_nobody_saw() -> None:
    """0 for "unknown" would be read as a measurement."""
    unseen = Usage(wall_s=1.23456789, cpu_s=None, peak_memory_bytes=None, memory_from=None)
    assert unseen.to_json() == {
        "wall_s": 1.234568,
        "cpu_s": None,
        "peak_memory_bytes": None,
        "memory_from": None,
    }
    seen = Usage(wall_s=2.0, cpu_s=0.1234567, peak_memory_bytes=5, memory_from="watch")
    assert seen.to_json()["cpu_s"] == 0.123457
