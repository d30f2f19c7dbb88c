"""Keys of tries, and the places that they name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.records.capture_frames import is_key
from console.records.capture_paths import place_of_file
from console.records.try_key import place_of, try_key

_NUMBER = st.integers(0, 999_999_999)


@given(st.tuples(_NUMBER, _NUMBER, _NUMBER, _NUMBER))
def test_a_key_names_its_place_and_may_name_files(place: tuple[int, int, int, int]) -> None:
    key = try_key(place)
    assert is_key(key) and place_of(key) == place
    assert [place_of_file(key + suffix) for suffix in (".calls", ".calls.zst")] == [place, place]


def test_each_number_stands_at_its_letter() -> None:
    assert try_key((3, 1, 2, 0)) == "s3.g1.t2.y0"


@pytest.mark.parametrize(
    "key",
    ["", "s3.g1.t2", "s3.g1.t2.y", "s3.g1.t2.y0.", "s3.g1.t2.y0.calls", "s3.g1.t2.y0\n", " s3.g1.t2.y0", "s3.t1.g2.y0",
     "s3.g1.t2.y-1", "s3.g1.t2.y1234567890", "s٣.g1.t2.y0", "s3g1t2y0"],
)  # fmt: skip
def test_what_is_no_key_has_no_place(key: str) -> None:
    assert place_of(key) is None


@pytest.mark.parametrize(
    "name",
    ["s3.g1.t2.y0", "s3.g1.t2.y0.calls.earlier-1", "s3.g1.t2.y0.calls.earlier-1.zst", "s3.g1.t2.calls", "a.calls"],
)
def test_only_the_newest_file_of_a_try_is_named_after_its_place(name: str) -> None:
    assert place_of_file(name) is None
