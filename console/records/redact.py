"""Takes secrets out of JSON that others wrote, before it is shown."""

from __future__ import annotations

import re
from typing import Any

HIDDEN = "[redacted]"
_NAMES = re.compile(r"key|secret|token|passw|credential|auth|cookie", re.IGNORECASE)
_PUBLIC = re.compile(r"_name$|^tokens?$|^reward_key$|^tokenizer|^authors?$|^keywords?$", re.IGNORECASE)
_SHAPES = re.compile(
    r"(?i)(\bbearer\s+)[^\s\"',;]+|\b(?:tml|sk|e2b|ghp|hf|xox[abp])[-_][A-Za-z0-9_-]{12,}|(://)[^/\s:@]+:[^@\s/]+(?=@)"
)


def redact(value: Any, name: str = "") -> Any:
    """The JSON value without texts under secret-looking names and without texts shaped like keys."""
    if isinstance(value, dict):
        return {key: redact(item, str(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [redact(item, name) for item in value]
    if isinstance(value, str):
        if value and _NAMES.search(name) and not _PUBLIC.search(name):
            return HIDDEN
        return _SHAPES.sub(lambda match: f"{match.group(1) or match.group(2) or ''}{HIDDEN}", value)
    return value
