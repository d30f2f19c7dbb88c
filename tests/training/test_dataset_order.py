"""The tasks of a run: which, in what order, in what batches."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from console.commands.start import planned_steps
from console.errors import UsageError
from console.training.dataset import HarborDataset, HarborDatasetBuilder
from console.training.options import parse
from console.training.tasks import find_tasks


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    for name in "edbca":
        (tmp_path / name).mkdir()
        (tmp_path / name / "task.toml").touch()
    (tmp_path / "notes").mkdir()
    (tmp_path / "task.toml").touch()
    return tmp_path


def test_a_task_is_a_direct_child_with_a_task_file(tasks):
    assert [path.name for path in find_tasks(tasks)] == ["a", "b", "c", "d", "e"]
    with pytest.raises(UsageError, match="no task in it"):
        find_tasks(tasks / "notes")


def test_each_epoch_has_every_task_once_and_a_seed_means_one_order(tasks):
    def order(seed: int | None) -> list[str]:
        builder = HarborDatasetBuilder(tasks_dir=str(tasks), epochs=3, shuffle_seed=seed)
        return [path.name for path in builder.task_order()]

    assert order(None) == list("abcde") * 3
    assert order(7) == order(7) != order(8)
    epochs = [order(7)[i : i + 5] for i in (0, 5, 10)]
    assert all(Counter(epoch) == Counter("abcde") for epoch in epochs)
    assert epochs[0] != epochs[1]


def test_batches_end_with_a_smaller_one_and_know_their_place(tasks):
    seen: list[tuple[int, int]] = []
    builder = HarborDatasetBuilder(tasks_dir=str(tasks), groups_per_batch=2)
    dataset = HarborDataset(
        builder.task_order(), builder.batches(), 2, 4, lambda step, groups: seen.append((step, len(groups)))
    )
    assert len(dataset) == 3
    batches = [dataset.get_batch(i) for i in (0, 2, 1)]
    assert [[(g.task.name, g.step, g.group, g.size) for g in batch] for batch in batches] == [
        [("a", 0, 0, 4), ("b", 0, 1, 4)], [("e", 2, 0, 4)], [("c", 1, 0, 4), ("d", 1, 1, 4)],
    ]  # fmt: skip
    assert seen == [(0, 2), (2, 1), (1, 2)]


@pytest.mark.parametrize(("groups", "epochs", "limit"), [(2, 1, "None"), (2, 3, "None"), (5, 2, "9"), (1, 4, "3")])
def test_the_command_line_plans_as_many_steps_as_the_dataset_has(tasks, groups, epochs, limit):
    options = parse(
        [
            "config.model_name=a/b", "config.learning_rate=1e-3", "config.max_tokens=8", "config.log_path=run",
            f"config.dataset_builder.tasks_dir={tasks}", f"config.dataset_builder.groups_per_batch={groups}",
            f"config.dataset_builder.epochs={epochs}", f"config.max_steps={limit}", "harbor.trial_config=t.json",
        ]
    )  # fmt: skip
    built = HarborDatasetBuilder(tasks_dir=str(tasks), groups_per_batch=groups, epochs=epochs).batches()
    assert planned_steps(options) == (built if limit == "None" else min(built, int(limit)))


def batches(tasks: Path, left_out: set[str], groups: int, epochs: int = 1) -> list[str]:
    builder = HarborDatasetBuilder(tasks_dir=str(tasks), groups_per_batch=groups, epochs=epochs)
    dataset = HarborDataset(
        builder.task_order(), builder.batches(), groups, 4, lambda step, batch: None, lambda: left_out
    )
    made = [dataset.get_batch(i) for i in range(len(dataset))]
    for batch in made:
        assert [g.group for g in batch] == list(range(len(batch)))
        assert {g.batch for g in batch} == {len(batch)}
    return ["".join(g.task.name for g in batch) for batch in made]


@pytest.mark.parametrize(
    ("left_out", "groups", "expected"),
    [
        ("", 2, ["ab", "cd", "e"]),
        ("b", 2, ["ac", "cd", "e"]),
        ("ab", 2, ["cd", "cd", "e"]),
        ("e", 2, ["ab", "cd", "a"]),
        ("de", 2, ["ab", "ca", "a"]),
        ("abcd", 2, ["e", "e", "e"]),
        ("ac", 5, ["bde"]),
    ],
)
def test_a_quarantined_task_is_replaced_by_the_next_that_is_not_in_the_batch(tasks, left_out, groups, expected):
    assert batches(tasks, set(left_out), groups) == expected
    assert batches(tasks, set(left_out), groups) == expected


def test_a_batch_that_spans_epochs_keeps_its_size(tasks):
    assert batches(tasks, {"e"}, 4, epochs=2) == ["abcd", "dabc", "da"]
    assert batches(tasks, {"a", "unknown"}, 5, epochs=2) == ["bcde", "bcde"]
    assert batches(tasks, {"a", "b", "c"}, 4, epochs=2)[0] == "ed", "a task comes once, whatever the epochs"
