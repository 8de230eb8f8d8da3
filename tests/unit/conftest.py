"""Hypothesis without its deadline: how long an example takes says who shares the
machine, not whether the law holds. What must be fast has a test of its own.
"""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("laws", deadline=None)
settings.load_profile("laws")
