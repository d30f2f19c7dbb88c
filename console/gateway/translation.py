"""The one seam where requests of the installed Tinker SDK are made acceptable to gateways made for other ones.

Gateways of the generation 0.26 refuse each field that they do not know, and the SDK sends the fields of today in every
request. Where such a field says what that gateway does anyway, it is left out; where it says something else, the
request is refused here, in one line. A model is created first and a checkpoint loaded into it where the SDK does both
at once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import tinker
from tinker import types
from tinker._client import AsyncTinker
from tinker.lib.client_connection_pool_type import ClientConnectionPoolType
from tinker.lib.public_interfaces import sampling_client
from tinker.lib.public_interfaces.service_client import ServiceClient
from tinker.lib.public_interfaces.training_client import TrainingClient

from console.errors import UsageError
from console.gateway.profiles import TRANSLATED_SDK, GatewayProfile
from console.gateway.seam import Seam

_REFUSED = object()
"""For a field whose presence already says what the gateway does not do."""
_DROPPED = object()
"""For a field that changes nothing for the run."""

LATER_FIELDS: dict[str, dict[str, Any]] = {
    "create_session": {"display_name": _DROPPED},
    "create_model": {"optimizer_config": {"type": "adamw"}},
    "optim_step": {"optimizer_params": _REFUSED},
    "save_weights": {"user_metadata": _DROPPED},
    "save_weights_for_sampler": {"kind": "snapshot", "user_metadata": _DROPPED},
    "load_weights": {"optimizer_config": {"type": "adamw"}},
    "asample": {
        "topk_sample_logprobs": 0,
        "prompt_alt_tokens_k": 0,
        "target_prompt_logprobs": _REFUSED,
        "prompt_logprobs_last_n": _REFUSED,
    },
}
"""By route, the fields that came after 0.26, or that gateways of that time refuse, with the value that says nothing."""

FIELDS_PHRASE = "fields newer than SDK 0.26 are left out while they hold their defaults"
METADATA_PHRASE = "metadata of saved weights and the session's name are left out"
LOAD_PHRASE = "a checkpoint is loaded into a model that is created first"
SEQUENCES_PHRASE = "samples are given a sequence_id"


class Installed:
    """What is translated in this process, until `undo` or the end of the `with` block.

    Attributes:
        phrases: what is changed, for `GatewayProfiled.translated`; empty when nothing is.
    """

    def __init__(self, seam: Seam, phrases: list[str]) -> None:
        self._seam = seam
        self.phrases = phrases

    def undo(self) -> None:
        """Speak to gateways again as the SDK does; a second call changes nothing."""
        self._seam.undo()

    def __enter__(self) -> Installed:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()


def installed(profile: GatewayProfile) -> Installed:
    """Make what the SDK sends in this process, from now on, acceptable to the gateway.

    Raises:
        UsageError: something needs translation, and it is not made for the installed SDK.
    """
    phrases = []
    wrappers: list[tuple[Any, str, Callable[[Callable[..., Any]], Callable[..., Any]]]] = []
    if profile.sdk == "0.26":
        wrappers.append((AsyncTinker, "_prepare_options", _without_later_fields))
        phrases += [FIELDS_PHRASE, METADATA_PHRASE]
    if not profile.create_by_load:
        wrappers.append((ServiceClient, "_create_training_client_via_load_weights_submit", _create_then_load))
        phrases.append(LOAD_PHRASE)
    if not profile.sequence_ids:
        wrappers.append((sampling_client, "_attach_sequence_ids", _with_sequence_ids))
        phrases.append(SEQUENCES_PHRASE)
    seam = Seam()
    if wrappers:
        _check_sdk(profile, [(owner, name) for owner, name, _ in wrappers])
    for owner, name, make in wrappers:
        seam.wrap(owner, name, make)
    return Installed(seam, phrases)


def _check_sdk(profile: GatewayProfile, used: list[tuple[Any, str]]) -> None:
    """Raise `UsageError` unless the installed SDK is the one that is known here."""
    needed = [*used, (ServiceClient, "_create_lora_training_client_submit"), (TrainingClient, "_load_state_impl")]
    missing = [name for owner, name in needed if not callable(getattr(owner, name, None))]
    if missing or not (tinker.__version__ == TRANSLATED_SDK or tinker.__version__.startswith(f"{TRANSLATED_SDK}.")):
        lacks = f", and lacks {missing[0]}" if missing else ""
        raise UsageError(
            f"tinker {tinker.__version__} is installed{lacks}: requests for a {profile.name} gateway can be translated "
            f"from {TRANSLATED_SDK} only; install tinker~={TRANSLATED_SDK}.0"
        )


def without_later_fields(route: str, body: dict[str, Any]) -> dict[str, Any]:
    """The body of a request as the generation 0.26 knows it.

    Args:
        route: last part of the request's path.

    Raises:
        UsageError: a field that it does not know says something that it does not do.
    """
    later = LATER_FIELDS.get(route)
    if not later or later.keys().isdisjoint(body):
        return body
    for name, default in later.items():
        if name in body and default is not _DROPPED and (default is _REFUSED or body[name] != default):
            raise UsageError(
                f"{route}: this gateway takes requests of the SDK 0.26, which has no {name}={str(body[name])[:80]}; "
                "leave it at its default, or use a gateway that knows it"
            )
    return {name: value for name, value in body.items() if name not in later}


def _without_later_fields(before: Callable[..., Any]) -> Callable[..., Any]:
    async def prepare(client: Any, options: Any) -> Any:
        options = await before(client, options)
        if isinstance(options.json_data, dict):
            route = str(options.url).rstrip("/").rsplit("/", 1)[-1]
            # The dictionary belongs to the caller, and is sent again on a retry.
            options.json_data = without_later_fields(route, options.json_data)
        return options

    return prepare


def _create_then_load(before: Callable[..., Any]) -> Callable[..., Any]:
    def submit(
        service: Any,
        path: str,
        optimizer: bool,
        optimizer_config: Any,
        base_model: str | None,
        user_metadata: dict[str, str] | None,
        weights_access_token: str | None,
    ) -> Any:
        holder = service.holder  # the first use connects, and blocks: not on the SDK's own loop

        async def create() -> Any:
            async def ask() -> types.WeightsInfoResponse:
                with holder.aclient(ClientConnectionPoolType.TRAIN) as client:
                    told: types.WeightsInfoResponse = await client.post(
                        "/api/v1/weights_info", body={"tinker_path": path}, cast_to=types.WeightsInfoResponse
                    )
                    return told

            info = await holder.execute_with_retries(ask)
            model = await service._create_lora_training_client_submit(
                base_model or info.base_model,
                info.lora_rank if info.lora_rank is not None else 32,
                None,
                info.train_mlp is not False,
                info.train_attn is not False,
                info.train_unembed is not False,
                user_metadata,
                optimizer_config,
            )
            await model._load_state_impl(path, optimizer=optimizer, weights_access_token=weights_access_token)
            return model

        return holder.run_coroutine_threadsafe(create())

    return submit


def _with_sequence_ids(before: Callable[..., Any]) -> Callable[..., Any]:
    def attach(response: Any, ids: list[str] | None) -> Any:
        return before(response, [f"seq-{uuid.uuid4().hex}" for _ in response.sequences] if ids is None else ids)

    return attach
