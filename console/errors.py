"""The one exception hierarchy.

Every message names the object and the remedy in one line; `exit_code` follows the table in the README.
"""

from __future__ import annotations


class QuarterdeckError(Exception):
    """Base of every error that Quarterdeck raises on purpose.

    Attributes:
        exit_code: the process exit code when this error ends a command.
    """

    exit_code = 7


class UsageError(QuarterdeckError):
    """Bad input: an unknown option, an unreadable file, a failed preflight. Nothing was started."""

    exit_code = 2


class Interrupted(QuarterdeckError):
    """The operator interrupted a command; the message says what became of what it had begun."""

    exit_code = 130


class MissingExtraError(UsageError):
    """The command needs the `engine` extra, which is not installed."""


class RecordingError(QuarterdeckError):
    """A run directory or journal that cannot be read."""

    exit_code = 10


class GatewayLostError(QuarterdeckError):
    """The Tinker gateway stopped answering, or forgot the session or the model."""

    exit_code = 5


class CaptureError(QuarterdeckError):
    """Captured tokens or log-probs are missing or wrong."""

    exit_code = 6


class ControlError(QuarterdeckError):
    """The engine's socket cannot be reached or refused a message."""

    exit_code = 2
