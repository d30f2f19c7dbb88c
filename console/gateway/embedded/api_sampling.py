"""Routes: samplers, sampling, and the results of promises."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from console.gateway.embedded.context import Gateway, promise, reply
from console.gateway.embedded.futures import Future
from console.gateway.embedded.problems import OperationProblem, RequestProblem
from console.gateway.embedded.proto import MEDIA_TYPE, encode_sample_result
from console.gateway.embedded.sampling import Adapter, SampleJob, SampleResult, SampleSpec
from console.gateway.embedded.sessions import Sampler
from console.gateway.embedded.wire import CreateSamplingSession, RetrieveFuture, Sample, SamplingParams, read_json

_PATH_ADAPTERS = 16
_STOPS = 64
_STOP_LENGTH = 256


@dataclass
class SamplingRoutes:
    """Handlers; see the module."""

    gateway: Gateway

    def routes(self) -> list[Route]:
        """The routes, the busiest first."""
        return [
            Route("/api/v1/retrieve_future", self.retrieve, methods=["POST"]),
            Route("/api/v1/asample", self.sample, methods=["POST"]),
            Route("/api/v1/cancel_future", self.cancel, methods=["POST"]),
            Route("/api/v1/create_sampling_session", self.create, methods=["POST"]),
            Route("/api/v1/samplers/{sampler_id}", self.info),
        ]

    async def create(self, request: Request) -> Response:
        """POST create_sampling_session: over the base model, or over a checkpoint."""
        tenant = self.gateway.tenant(request)
        body = await self.gateway.read(request, CreateSamplingSession)
        session = self.gateway.registry.session(body.session_id, tenant)
        self.gateway.check_base_model(body.base_model)
        if body.model_path is not None:
            adapter = await self._path_adapter(tenant, body.model_path)
        elif body.base_model is not None:
            adapter = self.gateway.base_adapter(tenant)
        else:
            raise RequestProblem(400, "base_model or model_path is required")
        sampler = self.gateway.registry.add_sampler(session, body.sampling_session_seq_id, adapter, body.model_path)
        return reply({"type": "create_sampling_session", "sampling_session_id": sampler.id})

    async def _path_adapter(self, tenant: str, path: str) -> Adapter:
        found = self.gateway.checkpoints.find(tenant, path)
        self.gateway.check_base_model(found.meta.base_model)
        key = f"{tenant}/{path}@{found.meta.created}"
        if key not in self.gateway.path_adapters:
            lora = await asyncio.to_thread(found.lora)
            self.gateway.path_adapters[key] = Adapter(key, lora, found.meta.layout.scale)
            while len(self.gateway.path_adapters) > _PATH_ADAPTERS:
                del self.gateway.path_adapters[next(iter(self.gateway.path_adapters))]
        return self.gateway.path_adapters[key]

    async def info(self, request: Request) -> Response:
        """GET samplers/{id}."""
        sampler = self.gateway.registry.sampler(request.path_params["sampler_id"], self.gateway.tenant(request))
        answer = {"sampler_id": sampler.id, "base_model": self.gateway.settings.name, "model_path": sampler.model_path}
        return reply(answer)

    async def sample(self, request: Request) -> Response:
        """POST asample."""
        tenant = self.gateway.tenant(request)
        body = await self.gateway.read(request, Sample, 2**22 + 32 * self.gateway.config.context_window)
        sampler = self.gateway.registry.sampler(body.sampling_session_id, tenant)
        future = sampler.known.get(body.seq_id)
        if future is None:
            future = self._submit(sampler, tenant, body)
            sampler.remember(body.seq_id, future)
        if not self.gateway.settings.like.sequence_ids:
            return promise(future)
        return promise(future, sample_sequence_ids=[f"{future.id}:{i}" for i in range(body.num_samples)])

    def _submit(self, sampler: Sampler, tenant: str, body: Sample) -> Future:
        spec = self._spec(body)
        waiting = self.gateway.engine.load().queued
        if waiting and waiting + spec.num_samples > self.gateway.settings.max_queued:
            raise RequestProblem(429, f"{waiting} sequences are waiting to be sampled", retry_after=1.0)
        future = self.gateway.futures.new(tenant, "sample")

        def done(result: SampleResult | OperationProblem) -> None:
            sampler.open.pop(future.id, None)
            if isinstance(result, OperationProblem):
                self.gateway.futures.fail(future, result)
            elif not future.settled:
                self.gateway.futures.settle(future, encode_sample_result(result), MEDIA_TYPE)

        job = SampleJob(sampler.adapter, spec, done)
        sampler.open[future.id] = (future, job)
        future.cancel = lambda: self._cancel(sampler, future, job)
        self.gateway.engine.submit_sample(job)
        return future

    def _cancel(self, sampler: Sampler, future: Future, job: SampleJob) -> None:
        self.gateway.engine.cancel(job)
        sampler.open.pop(future.id, None)
        self.gateway.futures.fail(future, OperationProblem("cancelled by the client"))

    def _spec(self, body: Sample) -> SampleSpec:
        """Check what JSON types alone cannot say.

        Raises:
            RequestProblem: 400 naming the field that is wrong.
        """
        config, like = self.gateway.config, self.gateway.settings.like
        if body.num_samples > like.max_samples:
            raise RequestProblem(400, f"num_samples must be an integer in [1, {like.max_samples}]")
        if like.needs_max_tokens and body.sampling_params.max_tokens is None:
            raise RequestProblem(400, "sampling_params.max_tokens is required")
        if body.target_prompt_logprobs is not None or body.prompt_alt_tokens_k:
            raise RequestProblem(400, "target_prompt_logprobs and prompt_alt_tokens_k are not supported")
        for index, chunk in enumerate(body.prompt.chunks):
            if chunk.type != "encoded_text":
                raise RequestProblem(400, f"prompt.chunks[{index}] is {chunk.type!r}; only encoded_text is supported")
        tokens = [token for chunk in body.prompt.chunks for token in chunk.tokens]
        if not tokens:
            raise RequestProblem(400, "prompt has no tokens")
        params = body.sampling_params
        room = config.context_window - len(tokens)
        max_tokens = max(room, 1) if params.max_tokens is None else params.max_tokens
        if max_tokens > room:
            # The wording of the hosted service, by which clients recognise an overflow.
            raise RequestProblem(
                400,
                "Prompt length plus max_tokens exceeds the model's context window: "
                f"{len(tokens)} prompt tokens + {max_tokens} max_tokens > {config.context_window}.",
            )
        if min(tokens) < 0 or max(tokens) >= config.vocab:
            raise RequestProblem(400, f"prompt has a token outside the vocabulary of {config.vocab}")
        stop_ids, stop_strings = self._stops(params)
        scored = len(tokens) - 1 if body.prompt_logprobs or body.topk_prompt_logprobs else 0
        if body.prompt_logprobs_last_n is not None:
            if body.prompt_logprobs_last_n > scored:
                raise RequestProblem(400, "prompt_logprobs_last_n needs prompt_logprobs, and at most len(prompt) - 1")
            scored = body.prompt_logprobs_last_n
        return SampleSpec(
            prompt=np.asarray(tokens, np.int32),
            max_tokens=max_tokens,
            num_samples=body.num_samples,
            temperature=params.temperature,
            top_p=params.top_p,
            top_k=params.top_k,
            seed=params.seed,
            stop_ids=stop_ids,
            stop_strings=stop_strings,
            scored=scored,
            topk_prompt=body.topk_prompt_logprobs,
            topk_sample=body.topk_sample_logprobs,
        )

    def _stops(self, params: SamplingParams) -> tuple[frozenset[int], tuple[str, ...]]:
        if params.stop is None:
            return self.gateway.config.eos_ids, ()
        stops = [params.stop] if isinstance(params.stop, str) else params.stop
        strings = tuple(stop for stop in stops if isinstance(stop, str))
        if len(stops) > _STOPS or any(not 0 < len(stop) <= _STOP_LENGTH for stop in strings):
            raise RequestProblem(
                400, f"sampling_params.stop: at most {_STOPS} stops, each 1 to {_STOP_LENGTH} characters"
            )
        if strings and not self.gateway.engine.has_tokenizer:
            raise RequestProblem(
                400, "sampling_params.stop: the model has no tokenizer.json, so only token ids can stop"
            )
        return frozenset(stop for stop in stops if isinstance(stop, int)), strings

    async def retrieve(self, request: Request) -> Response:
        """POST retrieve_future: waits for the result, and says `try_again` when that takes too long."""
        tenant = self.gateway.tenant(request)
        future = self.gateway.futures.get((await read_json(request, RetrieveFuture)).request_id, tenant)
        like = self.gateway.settings.like
        if not await self.gateway.futures.wait(future, self.gateway.settings.poll_seconds):
            if like.poll_status != 200:
                raise RequestProblem(like.poll_status, "time-out while waiting for the result")
            return reply({"type": "try_again", "request_id": future.id, "queue_state": "active"})
        if future.problem is not None and like.problems_as_status:
            raise RequestProblem(400, future.problem.detail)
        if future.problem is not None:
            return reply({"error": future.problem.detail, "category": future.problem.category})
        return Response(future.body, media_type=future.media_type)

    async def cancel(self, request: Request) -> Response:
        """POST cancel_future: ends a sample that nobody waits for; other promises run on."""
        tenant = self.gateway.tenant(request)
        body = await read_json(request, RetrieveFuture)
        future = self.gateway.futures.get(body.request_id, tenant)
        if future.cancel is not None and not future.settled:
            future.cancel()
        return reply({"status": "ok"})
