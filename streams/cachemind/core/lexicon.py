"""Word lists as readable text."""

from __future__ import annotations


def terms(text: str) -> tuple[str, ...]:
    """Return the words of `text` in order."""
    return tuple(text.split())


def word_set(text: str) -> frozenset[str]:
    """Return the words of `text`, each once."""
    return frozenset(text.split())
