"""What an exception's name alone says. Harbor records bare class names, so one name may come from several libraries.

`SCOREABLE` is the allow-list, and nothing else can be scored on its name. A name that is in neither table is unknown:
text and phase decide what it is called, and it is not scored either.
"""

from __future__ import annotations

from typing import NamedTuple

from console.outcomes.classes import OutcomeClass

SCOREABLE: dict[str | None, OutcomeClass] = {
    None: OutcomeClass.COMPLETED,
    "AgentTimeoutError": OutcomeClass.AGENT_TIMEOUT,
    "ContextWindowExceededError": OutcomeClass.CONTEXT_OVERFLOW,
    "ContextLengthExceededError": OutcomeClass.CONTEXT_OVERFLOW,
    "OutputTokenExceededError": OutcomeClass.OUTPUT_LIMIT,
    "OutputLengthExceededError": OutcomeClass.OUTPUT_LIMIT,
}
"""Exception types whose trial keeps the verifier's reward; None is a clean end."""

CANCELLED = "CancelledError"
CREATE_REFUSED = "TrialCreateError"

AGENT_EXITS = frozenset(
    {
        "NonZeroAgentExitCodeError",
        "BadRequestError",
        "UnprocessableEntityError",
        "HTTPStatusError",
        "APIStatusError",
    }
)
"""Types that say the agent gave up, but not why: the capture gateway's record and the text may."""

OUTPUT_DERIVED = frozenset(
    {
        "ApiError",
        "ApiRateLimitError",
        "ApiUsageLimitError",
        "ApiInternalServerError",
        "ApiOverloadedError",
        "UnknownApiError",
    }
)
"""Types that Harbor reads out of the agent's output by pattern, where an agent that merely writes `rate limit` matches
too. A server answered in each of them, so the capture gateway's record can contradict them."""

AUTH = frozenset({"AgentAuthenticationError", "AuthenticationError", "PermissionDeniedError"})
"""Types that may concern the route's own token: the capture gateway's record decides."""

SETUP_PHASES = frozenset({"create", "environment", "setup"})
"""Phases before the agent runs: whatever fails there is not the agent's doing."""

VERIFIER_PHASES = frozenset({"verify", "teardown"})


class TypeRule(NamedTuple):
    """What a name means: its class, the cause within it, and the rule's id."""

    outcome: OutcomeClass
    cause: str
    rule: str


def _table(*groups: tuple[OutcomeClass, str, str, str]) -> dict[str, TypeRule]:
    return {name: TypeRule(outcome, cause, rule) for outcome, cause, rule, names in groups for name in names.split()}


_INFRA = OutcomeClass.INFRASTRUCTURE
_CONFIG = OutcomeClass.CONFIGURATION
_BAD = OutcomeClass.BAD_REWARD

TYPE_RULES: dict[str, TypeRule] = _table(
    (
        _INFRA,
        "sandbox",
        "type.sandbox",
        # Ours, Harbor's, and the sandbox providers'.
        "SandboxLostError EnvironmentStartError EnvironmentStartTimeoutError SandboxBuildFailedError HealthcheckError "
        "SandboxLikelyOutOfMemoryError MemoryLimitExceededError SSHAccessError GKEExecStreamClosedError "
        "GKEPodNotFoundError RuntimeRequestError AddTestsDirError DownloadVerifierDirError SandboxError "
        "SandboxException SandboxNotRunningException SandboxUnreachableException SandboxNotFoundException "
        "SandboxNotFoundError SandboxTimeoutError TimeoutException NotFoundException FileNotFoundException "
        "RateLimitException ServiceBusyException TemplateException BuildException FileUploadException "
        "NotEnoughSpaceException InvalidArgumentException CommandExitException GitUpstreamException "
        "GuestUnresponsiveException VolumeException VolumeNotFoundException VolumePathNotFoundException DaytonaError "
        "DaytonaNotFoundError RemoteError ProcessLookupError SandboxTerminatedError",
    ),
    (_INFRA, "setup", "type.setup", "AgentSetupTimeoutError AgentSetupError"),
    (
        _INFRA,
        "api",
        "type.api",
        "ApiError ApiRateLimitError ApiInternalServerError ApiOverloadedError ApiConnectionClosedError "
        "ApiResponseStalledError UnknownApiError ApiConnectionError ApiTimeoutError RateLimitError "
        "InternalServerError ServiceUnavailableError BadGatewayError APIConnectionError APITimeoutError APIError "
        "APIResponseValidationError MidStreamFallbackError Timeout RequestFailedError ConflictError",
    ),
    (
        _INFRA,
        "network",
        "type.network",
        "NetworkConnectionError ReadTimeout WriteTimeout ConnectTimeout PoolTimeout ReadError WriteError ConnectError "
        "CloseError NetworkError ProxyError ProtocolError LocalProtocolError RemoteProtocolError TransportError "
        "RequestError HTTPError ConnectionError ConnectionResetError ConnectionRefusedError "
        "ConnectionAbortedError BrokenPipeError IncompleteRead ClientConnectorError ClientConnectionError ClientError "
        "ClientOSError ClientPayloadError ClientResponseError ServerDisconnectedError ServerTimeoutError SSLError "
        "gaierror",
    ),
    (_INFRA, "runner", "type.runner", f"RunnerLostError RunnerShortageError MemoryError {CANCELLED}"),
    (_INFRA, "runner", "type.trial_files", "TrialFilesError"),
    (_BAD, "missing", "type.reward_missing", "RewardFileNotFoundError RewardFileEmptyError"),
    (_BAD, "verifier_fault", "type.verifier", "VerifierTimeoutError RegradeError"),
    (_BAD, "non_numeric", "type.reward_unreadable", "VerifierOutputParseError"),
    (
        _CONFIG,
        "key",
        "type.key",
        "AuthenticationException GitAuthException SecretException SecretNotFoundException AgentAuthenticationError "
        "AuthenticationError",
    ),
    (_CONFIG, "key", "type.permission", "PermissionDeniedError VercelScopeError"),
    (
        _CONFIG,
        "model",
        "type.model",
        "ModelNotFoundError NotFoundError ApiProviderResourceNotFoundError",
    ),
    (
        _CONFIG,
        "option",
        "type.option",
        f"{CREATE_REFUSED} UnsupportedModelParametersError UnsupportedParamsError ServiceOperationsUnsupportedError",
    ),
    (_CONFIG, "quota", "type.quota", "ApiUsageLimitError BudgetExceededError"),
    (_CONFIG, "missing_extra", "type.extra", "MissingExtraError DspyImportError"),
    (
        OutcomeClass.AGENT_FAILURE,
        "refusal",
        "type.refusal",
        "AgentSafetyRefusalError ContentPolicyViolationError",
    ),
)
"""Type name to what it means, for every type outside the allow-list that has a fixed meaning."""
