"""The entry point for notebooks and programs, under the name that they use. Its code is :mod:`answers.warehouse`."""

from __future__ import annotations

from answers.warehouse import OpenWarehouse, open

__all__ = ["OpenWarehouse", "open"]
