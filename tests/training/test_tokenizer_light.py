"""The light tokenizer against the one that the cookbook would load from the same directory."""

from __future__ import annotations

import pytest
from transformers import AutoTokenizer

from console.resources import BUNDLED_MODEL, models_dir
from console.training.setup import register_bundled_tokenizers, repair_records
from console.training.tokenizer import LightTokenizer

DIRECTORY = models_dir() / BUNDLED_MODEL
TEXTS = ["", "ls -la /app", "<|im_start|>user\nHi<|im_end|>\n", "naïve ☃ 漢字\n\tx", "a" * 500]


def test_it_encodes_and_decodes_as_transformers_does():
    ours, theirs = LightTokenizer(DIRECTORY), AutoTokenizer.from_pretrained(DIRECTORY)
    for text in TEXTS:
        ids = ours.encode(text)
        assert ids == theirs.encode(text, add_special_tokens=False)
        assert ours.decode(ids) == theirs.decode(ids)
        assert ours.decode(ids, skip_special_tokens=True) == theirs.decode(ids, skip_special_tokens=True)
    assert (ours.eos_token, ours.eos_token_id) == (theirs.eos_token, theirs.eos_token_id)
    assert ours.convert_tokens_to_ids("<|im_end|>") == theirs.convert_tokens_to_ids("<|im_end|>")


def test_the_cookbook_finds_it_by_the_models_name():
    from tinker_cookbook.tokenizer_utils import get_tokenizer

    register_bundled_tokenizers()
    first = get_tokenizer("quarterdeck/midshipman")
    assert isinstance(first, LightTokenizer) and get_tokenizer("quarterdeck/midshipman") is first


@pytest.mark.parametrize("torn", ['{"name": "0000', "[1, 2", '{"name": "x"}{"name": "y"}'])
def test_torn_records_of_the_cookbook_are_set_aside(tmp_path, torn):
    from tinker_cookbook.checkpoint_utils import get_last_checkpoint

    good = '{"name": "000002", "batch": 2, "state_path": "tinker://a/weights/000002"}\n'
    path = tmp_path / "checkpoints.jsonl"
    path.write_text(good + torn)
    repair_records(tmp_path)
    assert path.read_text() == good
    assert (tmp_path / "checkpoints.jsonl.damaged").read_text() == torn + "\n"
    assert get_last_checkpoint(str(tmp_path)).batch == 2
    repair_records(tmp_path)
    assert path.read_text() == good
    assert not (tmp_path / "metrics.jsonl").exists()
