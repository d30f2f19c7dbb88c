"""What triage knows beyond the rules of training: more words of more programs, and what their absence means.

Training asks the capture gateway what a trial's calls met; a job directory has only texts. So there are more of them
here, and the same classes and causes. A rule's id begins with `bench.`; `console.outcomes.meaning` has its words.
"""

from __future__ import annotations

import hashlib
import re

from console.outcomes import text, types
from console.outcomes.classes import OutcomeClass
from console.outcomes.text import TextRule

_INFRA = OutcomeClass.INFRASTRUCTURE
_CONFIG = OutcomeClass.CONFIGURATION
_FAILURE = OutcomeClass.AGENT_FAILURE
_BAD = OutcomeClass.BAD_REWARD

_LOCAL = r"\blocalhost\b|\b127\.0\.0\.1\b|\b0\.0\.0\.0\b|(?<![\w:])::1\b"
"""In the line of a refused connection, before it or behind: an agent's own server is no network."""

_ANSWERED = r"curl: \(22\)"
"""A server that answered, with a status that curl was told to take for a failure."""


def _rule(
    name: str, outcome: OutcomeClass, cause: str, pattern: str, *, guarded: bool = True, unless: str = ""
) -> TextRule:
    harmless = re.compile(unless, re.IGNORECASE) if unless else None
    return TextRule(f"bench.{name}", outcome, cause, re.compile(pattern, re.IGNORECASE), guarded, harmless)


EXIT_RULES: tuple[TextRule, ...] = (
    *text.EXIT_RULES,
    _rule(
        "context",
        _FAILURE,
        "context_overflow",
        # SGLang, vLLM, OpenAI's Responses, Anthropic, Bedrock.
        r"longer than the (?:model'?s )?(?:maximum )?(?:context|model) length|exceeds the maximum allowed length"
        r"|exceeds? the (?:model'?s )?context limit|exceed context limit|model_context_window_exceeded"
        r"|input is too long for requested model|exceeds the available context size",
    ),
    _rule(
        "refusal",
        _FAILURE,
        "refusal",
        r"safety measures that flagged|flagged for possible cybersecurity risk|blocked by our safety systems"
        r"|violate our Usage Policy|Output blocked by content filtering|ContentFilterError"
        r"|blocked by the provider.s content filter|content management policy",
    ),
    _rule(
        "option",
        _FAILURE,
        "agent_bug",
        r"unknown option ['\"`-]|unrecognized arguments?: |unexpected argument ['\"`-]|No such option: "
        r"|invalid option -- ",
    ),
    _rule(
        "model",
        _CONFIG,
        "model",
        r"\bmodel_not_found\b|the model .{0,120}does not exist|no such model\b|Cannot use this model"
        r"|litellm\.NotFoundError",
    ),
    _rule(
        "key",
        _CONFIG,
        "key",
        r"\b(?:api[ _-]?)?(?:key|token|credentials?)\b.{0,30}\b(?:has |have |is |are )?(?:expired|revoked)\b"
        r"|\b403\b.{0,20}Forbidden|Invalid username or password|token_not_found_in_db",
    ),
    _rule("quota", _CONFIG, "quota", r"Budget has been exceeded|no credits remaining|unpaid invoice"),
    _rule(
        "connection",
        _INFRA,
        "network",
        r"(?:Connection (?:error|refused|reset by peer|timed out)|ECONNREFUSED|ECONNRESET|ETIMEDOUT|APIConnectionError"
        r"|RemoteProtocolError|ReadTimeout|ConnectTimeout|CERTIFICATE_VERIFY_FAILED)",
        unless=_LOCAL,
    ),
    _rule(
        "packages",
        _INFRA,
        "setup",
        r"npm (?:ERR!|error) (?:network|code E(?:AI_AGAIN|TIMEDOUT|CONNRESET|NOTFOUND))"
        r"|Could not install packages due to an OSError|No matching distribution found for"
        r"|does not have a Release file|Waiting for cache lock",
        guarded=False,
    ),
    _rule(
        "programs",
        _INFRA,
        "setup",
        r"sh: (?:line )?(?:\d+: )?(?:tmux|wget|apt-get|pip3?|sudo|asciinema|gpg|unzip|xz|tar|pgrep|pkill): "
        r"(?:command )?not found|version `GLIBC_[\d.]+' not found|cannot execute binary file",
        guarded=False,
    ),
)
"""Why an agent that ended with an error did: those of training and more. The match nearest the end decides."""

CONTEXT_RULES: tuple[TextRule, ...] = tuple(rule for rule in EXIT_RULES if rule.cause == "context_overflow")

IDLE = _rule("idle_killed", _INFRA, "sandbox", r"\bidle for \d+ ?ms, shutting down", guarded=False)
"""A sandbox that its provider took away because nobody had spoken to it: one long command is silence."""

VERIFIER_RULES: tuple[TextRule, ...] = (
    text.BOOTSTRAP,
    text.NO_TESTS,
    _rule(
        "verifier_lock",
        _BAD,
        "verifier_fault",
        r"Waiting for cache lock|Could not get lock /var/lib/(?:dpkg|apt)|is held by process \d+",
        guarded=False,
    ),
    _rule(
        "verifier_programs",
        _BAD,
        "verifier_fault",
        r"No module named ['\"]?pytest\b|(?:pytest|uv|apt-get): (?:command )?not found",
        guarded=False,
    ),
    _rule(
        "verifier_packages",
        _BAD,
        "verifier_fault",
        # Of the programs that run tests only: what else cannot be installed may be what the agent should have made.
        r"(?:satisfies the requirement|No matching distribution found for) (?:pytest|uv|pip|setuptools|wheel)\b"
        r"|dns error: failed to lookup address",
        guarded=False,
    ),
    _rule(
        "verifier_killed",
        _BAD,
        "verifier_fault",
        # As bash reports it, of the program that runs the tests: one of the agent's that is killed is the agent's.
        r"line \d+: +\d+ Killed\b.{0,80}(?:\buvx?\b|\bpytest\b|/tests/)",
        guarded=False,
    ),
)
"""A verifier that could not do its work. Asked only where it counted no test."""

REWARD_SHAPE = re.compile(r"VerifierResult|rewards", re.IGNORECASE)
"""In a validation error of the verifier's phase: what it wrote is no set of rewards."""

_BUGS = (
    "JSONDecodeError AttributeError KeyError IndexError TypeError ValueError AssertionError NameError "
    "UnboundLocalError NotImplementedError ZeroDivisionError RecursionError UnicodeDecodeError UnicodeEncodeError "
    "ImportError ModuleNotFoundError StopIteration LookupError OverflowError ValidationError"
)
HARNESS_BUGS = frozenset(_BUGS.split())
"""Exceptions of a program that is wrong, raised on the host: the agent's own code, not its model."""

READ_FROM_OUTPUT = types.OUTPUT_DERIVED | {"NetworkConnectionError", "ApiConnectionClosedError"}
"""Types that Harbor gives by a pattern anywhere in the output of a command: the output has to be asked again."""

HARBORS_WORDS = _rule(
    "output_words",
    OutcomeClass.AMBIGUOUS,
    "output_words",
    r"rate.?limit|too many requests|usage limit|Quota exceeded|API Error|ServiceUnavailableError|SSL_connect"
    r"|Connection (?:refused|timed out)|Request timed out|No route to host|curl: \(\d+\)",
    guarded=False,
)
"""What Harbor looks for."""

REPORTED_WORDS = HARBORS_WORDS._replace(guarded=True, unless=re.compile(f"{_LOCAL}|{_ANSWERED}", re.IGNORECASE))
"""The same in a line that looks like an error, and not like one of the agent's own servers or requests."""

EXEC_TIMEOUT = re.compile(r"\s*Command timed out after \d+")
"""How sandboxes report a command that used up its own limit, at the beginning of the message."""

UNDECIDED = frozenset({"exit.crash", "exit.killed", "exit.not_found", "type.unknown", "bench.killed"})
"""Rules that only say that nothing said more."""

TABLES = (
    EXIT_RULES,
    (IDLE, HARBORS_WORDS, REPORTED_WORDS),
    VERIFIER_RULES,
    text.IMAGE_RULES,
    text.CREATE_RULES,
    text.VERIFY_RULES,
)


def version() -> str:
    """Digest of the built-in tables: figures made with different rules are told apart by it."""
    digest = hashlib.sha256()
    for rule in (rule for table in TABLES for rule in table):
        unless = rule.unless.pattern if rule.unless else ""
        parts = (rule.rule, rule.outcome, rule.cause, rule.guarded, rule.pattern.pattern, unless)
        digest.update(("|".join(map(str, parts)) + "\n").encode())
    for name, kind in sorted(types.TYPE_RULES.items()):
        digest.update(f"{name}|{kind.outcome}|{kind.cause}\n".encode())
    return digest.hexdigest()[:12]
