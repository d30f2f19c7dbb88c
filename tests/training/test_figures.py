"""The figures of a batch against their formulas, worked out by hand."""

from __future__ import annotations

import math

import pytest
import tinker
import torch

from console.training.figures import BatchFigures, batch_figures, combine, finite


def datum(q: list[float], advantages: list[float], mask: list[float]) -> tinker.Datum:
    """A datum as the cookbook assembles it: dense tensors of one length."""

    def tensor(values: list[float]) -> tinker.TensorData:
        return tinker.TensorData.from_torch(torch.tensor(values, dtype=torch.float32))

    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints([1] * len(q)),
        loss_fn_inputs={"logprobs": tensor(q), "advantages": tensor(advantages), "mask": tensor(mask)},
    )


def test_figures_follow_their_definitions_and_leave_masked_tokens_out():
    q, a = [-9.0, -1.0, -2.0, -0.5], [0.0, 0.5, -0.5, 0.5]
    p = torch.tensor([-1.0, -0.5, -2.5, -0.5])
    got = batch_figures([datum(q, a, [0, 1, 1, 1])], [p], "ppo", None, None)
    delta = [0.5, -0.5, 0.0]
    w = [math.exp(d) for d in delta]
    assert got.tokens == 3
    assert got.entropy == pytest.approx((1.0 + 2.0 + 0.5) / 3)
    assert got.kl_v1 == pytest.approx(-sum(delta) / 3, abs=1e-6)
    assert got.kl_v2 == pytest.approx(0.5 * sum(d * d for d in delta) / 3)
    assert got.kl_k3 == pytest.approx(sum(x - 1 - d for x, d in zip(w, delta)) / 3)
    # exp(.5) > 1.2 with A > 0 clips; exp(-.5) < .8 with A < 0 clips; 1.0 does not.
    assert got.clip_fraction == pytest.approx(2 / 3)
    expected = -(min(w[0] * 0.5, 1.2 * 0.5) + min(w[1] * -0.5, 0.8 * -0.5) + 0.5)
    assert got.ppo_loss == pytest.approx(expected, rel=1e-5)


def test_the_gateways_loss_wins_and_other_losses_have_no_ppo_loss():
    d, p = datum([-1.0], [1.0], [1]), torch.tensor([-1.0])
    assert batch_figures([d], [p], "ppo", None, 12.5).ppo_loss == 12.5
    other = batch_figures([d], [p], "importance_sampling", None, 12.5)
    assert other.ppo_loss is None
    assert other.clip_fraction is None
    assert other.kl_v1 == pytest.approx(0.0)


def test_clip_thresholds_come_from_the_loss_config():
    d, p = datum([-1.0], [1.0], [1]), torch.tensor([-0.7])
    config = {"clip_low_threshold": 0.5, "clip_high_threshold": 1.5}
    assert batch_figures([d], [p], "ppo", None, None).clip_fraction == 1.0
    assert batch_figures([d], [p], "ppo", config, None).clip_fraction == 0.0


def test_no_tokens_give_unknown_figures_not_zeros():
    assert batch_figures([], [], "ppo", None, None) == BatchFigures(tokens=0)
    masked = batch_figures([datum([-1.0], [1.0], [0])], [torch.tensor([-1.0])], "ppo", None, None)
    assert masked.entropy is None and masked.kl_v1 is None


def test_substeps_add_losses_and_weight_means_by_tokens():
    got = combine(
        [
            BatchFigures(tokens=1, ppo_loss=1.0, entropy=4.0),
            BatchFigures(tokens=3, ppo_loss=2.0, entropy=0.0),
        ]
    )
    assert (got.tokens, got.ppo_loss, got.entropy, got.kl_v1) == (4, 3.0, 1.0, None)


def test_what_is_not_finite_becomes_null_and_is_named():
    names: list[str] = []
    assert finite(math.nan, "kl", names) is None
    assert finite(math.inf, "loss", names) is None
    assert finite(1.5, "entropy", names) == 1.5
    assert finite(None, "clip", names) is None
    assert names == ["kl", "loss"]
