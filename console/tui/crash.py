"""What is kept of a crash of the viewer: the traceback without local variables, redacted, in a private file."""

from __future__ import annotations

import os
import platform
import re
import tempfile
import time
import traceback
from pathlib import Path

_SECRET_NAMES = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)
_SECRET_SHAPES = re.compile(
    r"(?i)(bearer\s+)\S+|\b(tml|sk|e2b|ghp|hf)[-_][A-Za-z0-9_-]{12,}|(://[^/\s:@]+:)[^@\s/]+(?=@)"
)
_SHORTEST = 6


def redact(text: str) -> str:
    """`text` without the values of secret-looking environment variables and without strings shaped like keys."""
    values = {v for k, v in os.environ.items() if _SECRET_NAMES.search(k) and len(v) >= _SHORTEST}
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, "***")
    return _SECRET_SHAPES.sub(lambda m: f"{m.group(1) or m.group(3) or ''}***", text)


def write_crash(error: BaseException) -> Path | None:
    """Write the crash file (0600) and return its path; None when it cannot be written."""
    text = "".join(traceback.format_exception(error))
    head = (
        f"quarterdeck viewer crashed at {time.strftime('%Y-%m-%dT%H:%M:%S%z')}, Python {platform.python_version()}\n\n"
    )
    try:
        fd, name = tempfile.mkstemp(prefix="quarterdeck-crash-", suffix=".txt")
        with os.fdopen(fd, "w", encoding="utf-8", errors="replace") as file:
            file.write(redact(head + text))
    except OSError:
        return None
    return Path(name)
