"""The options of a run's trials and of the capture gateway that they reach the policy through."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

_PATH, _URL = {"kind": "path"}, {"kind": "url"}


class HarborOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How trials run, under `harbor.`."""

    trial_config: Annotated[
        str, Meta(description="Path to trial.json: a Harbor TrialConfig without `task`.", extra=_PATH)
    ]
    reward_key: Annotated[str, Meta(description="Key in the verifier's rewards used as the trial's reward.")] = "reward"
    reward_limit: Annotated[
        float, Meta(description="A reward of a larger magnitude is not believed: the trial ends as bad_reward.")
    ] = 1e6
    listen_host: Annotated[
        str, Meta(description="Address the capture gateway binds to; 0.0.0.0 for remote sandboxes.")
    ] = "127.0.0.1"
    advertised_host: Annotated[
        str, Meta(description="Host placed in {proxy_url}; it must be reachable from the sandboxes.")
    ] = "127.0.0.1"
    listen_port: Annotated[int, Meta(description="Port the capture gateway binds to; 0 for any that is free.")] = 0
    advertised_url: Annotated[
        str | None,
        Meta(
            description="Whole address placed in {proxy_url} instead of advertised_host and the port: of a tunnel or "
            "proxy before the capture gateway, e.g. https://host/path.",
            extra=_URL,
        ),
    ] = None
    tls_certificate: Annotated[
        str | None,
        Meta(description="Certificate chain (PEM) the capture gateway speaks TLS with; needs tls_key.", extra=_PATH),
    ] = None
    tls_key: Annotated[
        str | None, Meta(description="Private key (PEM, not encrypted) of tls_certificate.", extra=_PATH)
    ] = None
    allow_insecure: Annotated[
        bool,
        Meta(
            description="Let other machines reach the capture gateway without TLS: tokens and prompts then cross the "
            "network in clear. The environment variable QUARTERDECK_ALLOW_INSECURE=1 says the same."
        ),
    ] = False
    sandbox_cost_per_hour: Annotated[
        float | None,
        Meta(
            description="USD that an hour of one rented sandbox costs, for estimates; of E2B known from its size when "
            "omitted, of others not."
        ),
    ] = None
    sampling: Annotated[
        Literal["agent", "force"],
        Meta(
            description="`agent` honours the sampling parameters that agents send; `force` samples every call at "
            "temperature 1, top-p 1 and without top-k."
        ),
    ] = "agent"
    history_thinking: Annotated[
        Literal["keep", "template"],
        Meta(
            description="What becomes of earlier thoughts in a conversation: `keep` leaves them as they were sampled, "
            "`template` lets the chat template drop them: a turn is then trained apart wherever that changes what came "
            "before."
        ),
    ] = "keep"
    train: Annotated[
        Literal["all", "main"],
        Meta(
            description="Which conversations of a trial are trained: `all`, sub-agents and summaries too, or only the "
            "`main` one."
        ),
    ] = "all"
    max_calls: Annotated[int | None, Meta(description="Model calls of one trial at most; None for no limit.")] = None
    max_prompt_tokens: Annotated[
        int | None, Meta(description="Prompt tokens of one trial's calls at most, summed; None for no limit.")
    ] = None
    max_sampled_tokens: Annotated[
        int | None, Meta(description="Sampled tokens of one trial at most; None for no limit.")
    ] = None
    max_call_bytes: Annotated[
        int | None, Meta(description="Bytes of one trial's request bodies at most, summed; None for no limit.")
    ] = None
    max_inflight_calls: Annotated[int, Meta(description="Model calls of one trial that may be under way at once.")] = 8
    max_parallel_trials_per_group: Annotated[int, Meta(description="Trials of one group that run at once.")] = 4
    runners: Annotated[int, Meta(description="Processes that run Harbor; trials are spread over them.")] = 1
    verifier_faults: Annotated[
        Literal["reject", "score"],
        Meta(description="A zero whose tests never ran: `reject` ends the trial as bad_reward, `score` trains on it."),
    ] = "reject"
    on_failure: Annotated[
        Literal["stop", "hold", "retry"] | None,
        Meta(
            description="What a trial that cannot be scored does: stop the run, hold the trial for the operator, or "
            "retry infrastructure failures and then stop. None: hold with a console, stop without."
        ),
    ] = None
    max_tries: Annotated[int, Meta(description="With on_failure=retry: executions of one trial at most.")] = 3
