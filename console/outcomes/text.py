"""What the text of an error says, for exception types that do not say it themselves.

Words such as `rate limit` also appear in the work of an agent that configures a web server, so a guarded rule counts
only in a line that looks like an error report. Of several matches the one nearest the end decides: tools print their
banners first and the failure last.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from console.outcomes.classes import OutcomeClass

TAIL = 6_000
"""Characters at the end of a text that are searched."""

LIMIT = 300
"""Longest evidence, in characters."""

_INFRA = OutcomeClass.INFRASTRUCTURE
_CONFIG = OutcomeClass.CONFIGURATION
_FAILURE = OutcomeClass.AGENT_FAILURE


class TextRule(NamedTuple):
    """A pattern and what it means. `guarded`: only in lines that look like errors; `unless`: not in lines with this."""

    rule: str
    outcome: OutcomeClass
    cause: str
    pattern: re.Pattern[str]
    guarded: bool
    unless: re.Pattern[str] | None = None


class Hit(NamedTuple):
    """The rule that matched and the line it matched in."""

    rule: TextRule
    evidence: str


def _rule(name: str, outcome: OutcomeClass, cause: str, pattern: str, *, guarded: bool = True) -> TextRule:
    return TextRule(f"text.{name}", outcome, cause, re.compile(pattern, re.IGNORECASE), guarded)


_ERROR_LINE = re.compile(
    r"\b\w*(?:error|exception)\b\s*[:(\[{]"  # RateLimitError: ..., Error: ..., APIError(
    r"|\b(?:fatal|panic|failed|failure|traceback)\b"
    r"|\b(?:HTTP(?:/[\d.]+)?|status(?:[ _]code)?|code|exit)\W{1,3}[45]\d\d\b"
    r"|\bunexpected status [45]\d\d\b"
    r"|\"type\"\s*:\s*\"error\"|\"error\"\s*:|\bturn\.failed\b|\bE: ",
    re.IGNORECASE,
)

EXIT_RULES: tuple[TextRule, ...] = (
    _rule(
        "context",
        _FAILURE,
        "context_overflow",
        r"context[_ ]length[_ ]exceeded|maximum context length|exceeds? the (?:model'?s )?(?:maximum )?"
        r"context (?:window|length)|ContextWindowExceeded|ContextLengthExceeded|prompt is too long: \d+"
        r"|input token count .{0,40}exceeds the maximum|Requested token count exceeds",
    ),
    _rule(
        "output",
        _FAILURE,
        "output_limit",
        r"output token maximum|max(?:imum)?[_ ](?:output[_ ])?tokens? (?:reached|exceeded)|finish_reason\W{1,4}length",
    ),
    _rule(
        "auth",
        _CONFIG,
        "key",
        r"\b401\b.{0,40}(?:Unauthorized|invalid)|Incorrect API key|invalid[_ ]api[_ ]key|Not logged in"
        r"|AuthenticationError",
    ),
    _rule(
        "quota",
        _CONFIG,
        "quota",
        r"\b402\b|requires more credits|credit balance is too low|insufficient_quota|usage limit|Quota exceeded",
    ),
    _rule("rate", _INFRA, "api", r"\b429\b|rate.?limit(?:ed| exceeded|\s*error)|too many requests|\btoomanyrequests\b"),
    _rule(
        "api",
        _INFRA,
        "api",
        r"\b50[0234]\b|Internal server error|Overloaded|upstream timeout|Bad Gateway|Gateway Time-?out"
        r"|Provider returned error|Request timed out|Server disconnected",
    ),
    _rule(
        "network",
        _INFRA,
        "network",
        r"Could not resolve host|Temporary failure (?:in name resolution|resolving)|EAI_AGAIN|No route to host"
        r"|SSL_ERROR_SYSCALL|TLS handshake timeout|Network is unreachable",
        guarded=False,
    ),
    _rule(
        "packages",
        _INFRA,
        "setup",
        r"E: (?:Unable to fetch|Failed to fetch|Unable to locate package|Unable to acquire the dpkg)"
        r"|404\s+Not Found \[IP|Hash Sum mismatch|Could not get lock /var/lib"
        r"|Release file .{0,80}(?:expired|not valid)",
        guarded=False,
    ),
    _rule(
        "shell",
        _INFRA,
        "setup",
        r"Illegal option -o pipefail|sh: (?:line )?(?:\d+: )?(?:ps|curl|bash|node|npm|git|uv|python3?): "
        r"(?:command )?not found|exec format error",
        guarded=False,
    ),
    _rule(
        "memory",
        _INFRA,
        "sandbox",
        r"\boom-kill|out of memory: kill|\bOOMKilled\b|memory limit exceeded",
        guarded=False,
    ),
    _rule("runner", _INFRA, "runner", r"^\w+: in the runner: ", guarded=False),
    _rule("disk", _INFRA, "sandbox", r"No space left on device|Disk quota exceeded", guarded=False),
    _rule(
        "sandbox",
        _INFRA,
        "sandbox",
        r"Docker compose command failed|Cannot connect to the Docker daemon|nsenter: (?:cannot|reassociate)"
        r"|all predefined address pools have been|Failed to remove verifier reward files"
        r"|sandbox .{0,40}(?:was not found|not running|has been (?:killed|terminated))"
        r"|idle for \d+ms, shutting down"
        # The E2B SDK of a stream that ended early, and Harbor's own file transfers.
        r"|Command ended without an end event|Failed to (?:extract uploaded archive|archive \S+ in the sandbox)",
        guarded=False,
    ),
)
"""Why an agent that ended with an error did, in training: none of these is ever scored."""

CREATE_RULES: tuple[TextRule, ...] = (
    _rule(
        "create_network",
        _INFRA,
        "network",
        r"Could not resolve host|Temporary failure in name resolution|Connection (?:refused|reset|timed out)"
        r"|ConnectError|ReadTimeout",
        guarded=False,
    ),
    _rule("create_disk", _INFRA, "runner", r"No space left on device|Too many open files|Disk quota", guarded=False),
    _rule(
        "create_memory",
        _INFRA,
        "runner",
        r"MemoryError|Cannot allocate memory|can't start new thread|failed to map segment",
        guarded=False,
    ),
)
"""Refusals of Harbor that another try may cure; every other one is a mistake in the configuration."""

IMAGE_RULES: tuple[TextRule, ...] = (
    _rule(
        "image",
        _CONFIG,
        "image",
        r"manifest (?:unknown|for \S+ not found)|pull access denied|repository does not exist|No such image"
        r"|image \S+ (?:was )?not found|template \S+ (?:was )?not found",
        guarded=False,
    ),
    _rule(
        "dockerfile",
        _CONFIG,
        "image",
        r"Multi-stage Dockerfiles are not supported|Dockerfile must contain a FROM|No files found in /",
        guarded=False,
    ),
    _rule("sandbox_lease", _CONFIG, "option", r"Timeout cannot be greater than \d+", guarded=False),
    _rule("sandbox_key", _CONFIG, "key", r"Invalid API key|E2B_API_KEY|\b401\b.{0,20}Unauthorized", guarded=False),
)
"""Failures to start a sandbox that no further try can cure."""

VERIFY_RULES: tuple[TextRule, ...] = (
    _rule(
        "no_test_script",
        OutcomeClass.BAD_REWARD,
        "verifier_fault",
        r"No (?:\w+ )?test script found",
        guarded=False,
    ),
)
"""Faults of the task itself that show up while verifying."""

_TESTS_RAN = re.compile(r"\b\d+ (?:passed|failed)\b", re.IGNORECASE)
BOOTSTRAP = _rule(
    "verifier_bootstrap",
    OutcomeClass.BAD_REWARD,
    "verifier_fault",
    r"uvx: (?:command )?not found|/\.local/bin/env: No such file|curl: (?:command )?not found"
    r"|curl: \((?:5|6|7|16|22|28|35|52|56|60|92)\)(?!.{0,80}(?:localhost|127\.0\.0\.1|0\.0\.0\.0|::1))"
    r"|E: (?:Unable to fetch|Failed to fetch|Could not get lock|Unable to acquire the dpkg)"
    r"|Temporary failure resolving|\b(?:uv|download|fetch)\b.{0,120}operation timed out"
    r"|Failed to (?:download|fetch).{0,80}(?:cpython|python-build-standalone|pypi)",
    guarded=False,
)
NO_TESTS = _rule(
    "verifier_no_tests",
    OutcomeClass.BAD_REWARD,
    "verifier_fault",
    r"\bno tests ran\b|\bcollected 0 items\b",
    guarded=False,
)


def bounded(text: str) -> str:
    """One line of at most `LIMIT` characters."""
    line = " ".join(text.split())
    return line if len(line) <= LIMIT else line[: LIMIT - 1] + "…"


def line_at(text: str, start: int, end: int) -> str:
    """The line around a match, cut around it when it is long."""
    left = text.rfind("\n", 0, start) + 1
    right = text.find("\n", end)
    right = len(text) if right < 0 else right
    if right - left > LIMIT:
        left = max(left, min(start, end - LIMIT // 2) - LIMIT // 4)
    return bounded(text[left:right])


def searchable(kind: str, message: str) -> str:
    """The part of an exception that rules may search.

    An exit-code message quotes the command, which may quote the task: only the output after it counts. Any other
    message is what an exception said, so its first line is an error line.
    """
    if message.startswith("Command failed"):
        # A shortened message may have lost the first of the two.
        found = [at for at in (message.find("\nstdout:"), message.find("\nstderr:")) if at >= 0]
        return message[min(found) + 1 :] if found else ""
    return f"{kind}: {message}"


def find(text: str, rules: Sequence[TextRule]) -> Hit | None:
    """The match nearest the end of the last `TAIL` characters, None without one."""
    text = text[-TAIL:]
    best: tuple[int, Hit] | None = None
    for rule in rules:
        for match in rule.pattern.finditer(text):
            if best is not None and match.end() <= best[0]:
                continue
            line = line_at(text, match.start(), match.end())
            if rule.guarded and not _ERROR_LINE.search(line):
                continue
            if rule.unless is not None and rule.unless.search(line):
                continue
            best = (match.end(), Hit(rule, line))
    return best[1] if best else None


def tests_ran(output: str) -> bool:
    """Whether a verifier counted any test."""
    return _TESTS_RAN.search(output) is not None


def verifier_fault(output: str) -> Hit | None:
    """Why a verifier's zero says nothing about the agent: its tests never ran, or their runner could not be fetched.

    A verifier that counted any test has run, whatever else it printed.
    """
    if tests_ran(output):
        return None
    return find(output, (BOOTSTRAP, NO_TESTS))


_EXIT = re.compile(r"\bexit(?:ed)?(?: with)?(?: code| status)?[ :=(]+(\d{1,3})\b", re.IGNORECASE)
_UNWRAP = re.compile(r"\bRetryError\[.{0,200}? raised (\w+)", re.DOTALL)


def exit_code(message: str) -> int | None:
    """The exit code that a message names first, None when it names none."""
    match = _EXIT.search(message)
    return int(match.group(1)) if match else None


def unwrapped(exception_type: str, message: str) -> str:
    """The type inside a retry wrapper's message; the type itself when there is none."""
    if exception_type != "RetryError":
        return exception_type
    match = _UNWRAP.search(message)
    return match.group(1) if match else exception_type
