"""A lane: the rows that sample from one adapter together. Used from the compute thread."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from console.gateway.embedded.kv import KeptSequence, KVBatch, PrefixCache, Source, Tokens
from console.gateway.embedded.model import Model, Weights
from console.gateway.embedded.sampling import Adapter, SampleJob, TokenChooser, TopK

_PREFILL_TOKENS = 2048  # in one forward pass
_PREFILL_SCORES = 2**20  # query-key pairs of one head in one forward pass
_STOP_MARGIN = 4  # extra tokens decoded when looking for a stop string


class Row:
    """One sequence being sampled. Its keys and values are in row `slot` of its lane's batch, `length` positions."""

    def __init__(self, job: SampleJob, index: int) -> None:
        self.job = job
        self.spec = job.spec
        self.out = job.result.sequences[index]
        self.length = 0
        self.slot = -1
        self.lane: Lane | None = None
        self.blocks: list[int] = []
        self.extends: Source | None = None  # the kept sequence that this row's prompt extends whole
        # Seeded by text: the same on every platform and process, and different for each sample of a request.
        self.random = None if self.spec.seed is None else random.Random(f"{self.spec.seed}/{index}")

    @property
    def adapter(self) -> str:
        """See `Source`."""
        return self.job.adapter.key

    @property
    def cached(self) -> Tokens:
        """See `Source`: while the row runs, others may copy from its prompt."""
        return self.spec.prompt

    def read(self, length: int) -> tuple[Tensor, Tensor]:
        """See `Source`."""
        assert self.lane is not None
        return self.lane.kv.read(self.slot, length)

    def sequence(self) -> Tokens:
        """Prompt and sampled tokens whose keys and values exist."""
        return np.concatenate([self.spec.prompt, np.asarray(self.out.tokens, np.int32)])[: self.length]


class Lane:
    """Continuous batching of one adapter's rows: rows join and leave between any two steps."""

    def __init__(
        self,
        model: Model,
        adapter: Adapter,
        weights: Weights,
        cache: PrefixCache,
        tokenizer: Tokenizer | None,
        counters: dict[str, int],
    ) -> None:
        self.adapter = adapter
        self.kv = KVBatch(model.config)
        self.rows: list[Row] = []
        self._model, self._weights, self._cache, self._tokenizer = model, weights, cache, tokenizer
        self._counters = counters
        self._chooser = TokenChooser()
        self._logits = torch.empty(0, model.config.vocab)

    @property
    def used_tokens(self) -> int:
        """Positions in use."""
        return sum(row.length for row in self.rows)

    def admit(self, rows: Sequence[Row]) -> None:
        """Take rows in: copy the prefixes that are known, compute the rest, once for equal prompts."""
        groups: dict[tuple[bytes, int, int], list[Row]] = {}
        for row in rows:
            key = (row.spec.prompt.tobytes(), row.spec.scored, row.spec.topk_prompt)
            groups.setdefault(key, []).append(row)
        leaders: list[tuple[int, int, Source | None, Row]] = []  # (tokens to compute, tokens known, source, row)
        for first, *_ in groups.values():
            size = len(first.spec.prompt)
            limit = size - 1 - (first.spec.scored if first.spec.scored else 0)
            source, known = self._cache.find(self.adapter.key, first.spec.prompt, max(limit, 0))
            leaders.append((size - known, known, source, first))
        leaders.sort(key=lambda entry: entry[0])
        before = len(self.rows)
        self.kv.reserve(before + len(rows), max(len(row.spec.prompt) for row in rows) + 1)
        for slot, (_, known, source, row) in enumerate(leaders, before):
            self._place(row, slot)
            if source is not None:
                self.kv.write(slot, *source.read(known))
                row.extends = source if known == len(source.cached) else None
            self._counters["reused"] += known
        logits = [self._logits]
        for batch in _similar(leaders):
            logits.append(self._prefill([(row, known) for _, known, _, row in batch]))
        by_slot = torch.cat(logits)
        order = list(range(len(by_slot)))
        for _, known, _, leader in leaders:
            key = (leader.spec.prompt.tobytes(), leader.spec.scored, leader.spec.topk_prompt)
            scores = leader.job.result
            for row in groups[key]:
                if row is not leader:
                    self._place(row, len(order))
                    order.append(leader.slot)
                    self.kv.move(leader.slot, row.slot, len(row.spec.prompt))
                row.job.result.prompt_logprobs, row.job.result.prompt_topk = scores.prompt_logprobs, scores.prompt_topk
                row.job.result.reused = known
                row.length = len(row.spec.prompt)
            leader.blocks = self._cache.announce(self.adapter.key, leader)
        self._logits = by_slot[torch.tensor(order)] if len(order) > len(by_slot) else by_slot

    def _place(self, row: Row, slot: int) -> None:
        assert slot == len(self.rows)
        row.slot, row.lane = slot, self
        self.rows.append(row)

    def _prefill(self, batch: Sequence[tuple[Row, int]]) -> Tensor:
        """Compute the unknown tails of consecutive rows' prompts; returns the next-token logits (B, V)."""
        first, known = batch[0][0].slot, torch.tensor([known for _, known in batch])
        tails = [row.spec.prompt[done:] for row, done in batch]
        sizes = [len(tail) for tail in tails]
        self._counters["prefilled"] += sum(sizes)
        ids = torch.zeros(len(batch), max(sizes), dtype=torch.long)
        for index, tail in enumerate(tails):
            ids[index, : len(tail)] = torch.from_numpy(tail)
        reach = int(known.max()) + max(sizes)
        self.kv.reserve(0, reach)
        width = max(16, min(_PREFILL_TOKENS, _PREFILL_SCORES // reach) // len(batch))
        scores = [_PromptScores(row, done) if row.spec.scored else None for row, done in batch]
        last = torch.empty(len(batch), self._model.config.hidden)
        for offset in range(0, max(sizes), width):
            hidden = self._model.extend(self._weights, ids[:, offset : offset + width], known + offset, self.kv, first)
            for index, size in enumerate(sizes):
                if offset < size <= offset + width:
                    last[index] = hidden[index, size - 1 - offset]
                if (score := scores[index]) is not None and offset < size:
                    score.add(self._weights.unembed(hidden[index, : size - offset]), offset)
        for score in scores:
            if score is not None:
                score.finish()
        return self._weights.unembed(last)

    def step(self) -> None:
        """Draw one token for every row, let finished rows go, and compute the others' next logits."""
        specs = [row.spec for row in self.rows]
        tokens, logprobs, every = self._chooser.choose(self._logits, specs, [row.random for row in self.rows])
        kept: list[int] = []
        for index, row in enumerate(self.rows):
            row.out.tokens.append(tokens[index])
            row.out.logprobs.append(logprobs[index])
            if row.spec.topk_sample:
                top = every[index].topk(min(row.spec.topk_sample, every.shape[1]))
                row.out.topk = [*(row.out.topk or []), (top.indices.tolist(), top.values.tolist())]
            if not self._finished(row):
                kept.append(index)
        order = self._retire(kept)
        if not order:
            self._logits = self._logits[:0]
            return
        ids = torch.tensor([tokens[index] for index in order])
        starts = torch.tensor([row.length for row in self.rows])
        self.kv.reserve(0, int(starts.max()) + 1)
        hidden = self._model.extend(self._weights, ids[:, None], starts, self.kv, 0)
        self._logits = self._weights.unembed(hidden[:, 0])
        for row in self.rows:
            row.length += 1

    def drop_cancelled(self) -> None:
        """Let the rows of cancelled requests go."""
        if any(row.job.cancelled for row in self.rows):
            order = self._retire([index for index, row in enumerate(self.rows) if not row.job.cancelled])
            self._logits = self._logits[torch.tensor(order, dtype=torch.long)]

    def _finished(self, row: Row) -> bool:
        if row.job.cancelled:
            return True
        row.out.stopped = row.out.tokens[-1] in row.spec.stop_ids or self._completes_stop(row)
        return row.out.stopped or len(row.out.tokens) >= row.spec.max_tokens

    def _completes_stop(self, row: Row) -> bool:
        if not row.spec.stop_strings:
            return False
        assert self._tokenizer is not None  # such requests are refused without a tokenizer
        # Every token is at least one byte of the text, so a stop completed by the last token lies within this tail.
        tail = row.out.tokens[-max(len(stop.encode()) for stop in row.spec.stop_strings) - _STOP_MARGIN :]
        text = self._tokenizer.decode(tail, skip_special_tokens=False)
        return any(stop in text for stop in row.spec.stop_strings)

    def _retire(self, kept: list[int]) -> list[int]:
        """End the rows that are not at these indices, and fill their places with the last ones.

        Returns the former index of each row that stays, in the new order.
        """
        if len(kept) == len(self.rows):
            return kept
        gone = set(range(len(self.rows))) - set(kept)
        for index in sorted(gone):
            self._end(self.rows[index])
        holes = [index for index in sorted(gone) if index < len(kept)]
        movers = [index for index in kept if index >= len(kept)]
        order = [index for index in range(len(kept)) if index not in gone]
        for hole, index in zip(holes, movers, strict=True):
            row = self.rows[index]
            self.kv.move(index, hole, row.length)
            row.slot = hole
            order.insert(hole, index)
        self.rows = [self.rows[index] for index in order]
        return order

    def _end(self, row: Row) -> None:
        self._cache.withdraw(row, row.blocks)
        if row.job.cancelled:
            return
        finished = KeptSequence(self.adapter.key, row.sequence(), *self.kv.read(row.slot, row.length))
        self._cache.keep(finished, row.extends)
        row.job.open_rows -= 1
        if row.job.open_rows == 0:
            row.job.done(row.job.result)


class _PromptScores:
    """Collects the log-probs of a prompt's last `scored` tokens, chunk by chunk."""

    def __init__(self, row: Row, known: int) -> None:
        self._row, self._known = row, known
        prompt = row.spec.prompt
        self._logprobs = [float("nan")] * len(prompt)
        self._topk: TopK = [([], [])] * len(prompt)
        self._first = max(1, len(prompt) - row.spec.scored)

    def add(self, logits: Tensor, offset: int) -> None:
        """Take the logits (C, V) of the prompt positions from `known + offset`; position t predicts token t + 1."""
        prompt = self._row.spec.prompt
        start = self._known + offset
        scored = logits[: len(prompt) - 1 - start].log_softmax(-1)
        for index in range(max(0, self._first - 1 - start), len(scored)):
            token = start + index + 1
            self._logprobs[token] = float(scored[index, int(prompt[token])])
            if self._row.spec.topk_prompt:
                top = scored[index].topk(min(self._row.spec.topk_prompt, scored.shape[1]))
                self._topk[token] = (top.indices.tolist(), top.values.tolist())

    def finish(self) -> None:
        """Hand over what was collected."""
        result = self._row.job.result
        result.prompt_logprobs = self._logprobs
        result.prompt_topk = self._topk if self._row.spec.topk_prompt else None


def _similar(
    leaders: Sequence[tuple[int, int, Source | None, Row]],
) -> list[list[tuple[int, int, Source | None, Row]]]:
    """Split leaders, sorted by work, where padding them to equal work would waste much."""
    batches: list[list[tuple[int, int, Source | None, Row]]] = []
    for entry in leaders:
        if not batches or entry[0] > 2 * batches[-1][0][0] + 32 or (len(batches[-1]) + 1) * entry[0] > _PREFILL_TOKENS:
            batches.append([])
        batches[-1].append(entry)
    return batches
