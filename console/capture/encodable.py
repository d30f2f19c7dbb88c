"""Texts of agents and models may have lone surrogates, which neither JSON nor a tokenizer can carry."""

from __future__ import annotations


def encodable(value: str) -> str:
    """The text with lone surrogates replaced."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
