"""The ledger of the jail's own tests holds here too."""

from __future__ import annotations

from tests.jail.conftest import ledger

__all__ = ["ledger"]
