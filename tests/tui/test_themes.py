"""Every theme file loads, keeps its contrasts, and keeps the outcome colours apart for colour-blind eyes."""

from __future__ import annotations

import itertools
import math
import os
from pathlib import Path

import pytest

from console.resources import themes_dir
from console.tui.themes import FALLBACK, Palette, ThemeFile, Themes, load_theme

THEMES = Themes(themes_dir())
COLOURED = [t for t in THEMES.loaded.values() if not t.ansi]

Vector = tuple[float, float, float]
Matrix = tuple[Vector, Vector, Vector]

# Machado, Oliveira and Fernandes (2009), severity 1.0, for linear RGB.
VISIONS: dict[str, Matrix] = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
SRGB_TO_XYZ: Matrix = (
    (0.4124564, 0.3575761, 0.1804375),
    (0.2126729, 0.7151522, 0.0721750),
    (0.0193339, 0.1191920, 0.9503041),
)


def linear(colour: str) -> Vector:
    values = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values)
    return r, g, b


def times(matrix: Matrix, vector: Vector) -> Vector:
    x, y, z = (sum(m * v for m, v in zip(row, vector)) for row in matrix)
    return x, y, z


def contrast(a: str, b: str) -> float:
    """WCAG 2 contrast ratio."""
    first, second = (sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear(c))) for c in (a, b))
    return (max(first, second) + 0.05) / (min(first, second) + 0.05)


def lab(rgb: Vector) -> Vector:
    """CIELAB under D65 from linear RGB."""
    x, y, z = times(SRGB_TO_XYZ, tuple(min(1.0, max(0.0, v)) for v in rgb))  # type: ignore[arg-type]
    fx, fy, fz = (
        math.cbrt(v) if v > (6 / 29) ** 3 else v * (29 / 6) ** 2 / 3 + 4 / 29 for v in (x / 0.95047, y, z / 1.08883)
    )
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def ciede2000(one: Vector, two: Vector) -> float:
    """Colour difference after Sharma, Wu and Dalal (2005)."""
    (l1, a1, b1), (l2, a2, b2) = one, two
    mean_c = (math.hypot(a1, b1) + math.hypot(a2, b2)) / 2
    g = 0.5 * (1 - math.sqrt(mean_c**7 / (mean_c**7 + 25**7)))
    a1, a2 = a1 * (1 + g), a2 * (1 + g)
    c1, c2 = math.hypot(a1, b1), math.hypot(a2, b2)
    h1, h2 = (math.degrees(math.atan2(b, a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = 0.0 if c1 * c2 == 0 else (h2 - h1 + 180) % 360 - 180
    dl, dc, dh = l2 - l1, c2 - c1, 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2))
    lm, cm = (l1 + l2) / 2, (c1 + c2) / 2
    hm = h1 + h2 if c1 * c2 == 0 else (h1 + turn / 2) % 360
    t = (
        1
        - 0.17 * math.cos(math.radians(hm - 30))
        + 0.24 * math.cos(math.radians(2 * hm))
        + 0.32 * math.cos(math.radians(3 * hm + 6))
        - 0.20 * math.cos(math.radians(4 * hm - 63))
    )
    sl = 1 + 0.015 * (lm - 50) ** 2 / math.sqrt(20 + (lm - 50) ** 2)
    sc, sh = 1 + 0.045 * cm, 1 + 0.015 * cm * t
    rotation = (
        -2 * math.sqrt(cm**7 / (cm**7 + 25**7)) * math.sin(math.radians(60 * math.exp(-(((hm - 275) / 25) ** 2))))
    )
    return math.sqrt((dl / sl) ** 2 + (dc / sc) ** 2 + (dh / sh) ** 2 + rotation * (dc / sc) * (dh / sh))


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, 2.49, -0.001), (50.0, -2.49, 0.0009), 7.1792),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((2.0776, 0.0795, -1.135), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_ciede2000_against_the_published_pairs(one: Vector, two: Vector, expected: float) -> None:
    assert ciede2000(one, two) == pytest.approx(expected, abs=1e-4)


def test_every_shipped_file_loads() -> None:
    assert THEMES.failed == []
    assert {"dark", "light", "deuteranopia", "tritanopia", "high-contrast", "mono"} <= set(THEMES.loaded)
    assert all(path.stem in THEMES.loaded for path in themes_dir().glob("*.yaml"))


@pytest.mark.parametrize("theme", COLOURED, ids=lambda t: t.name)
def test_contrast(theme: ThemeFile) -> None:
    out = theme.outcome
    least = 7.0 if theme.name == "high-contrast" else 4.5
    texts = (theme.foreground, theme.muted, theme.accent, out.passed, out.zero, out.limit, out.infra)
    low = {(c, bg): contrast(c, bg) for c in texts for bg in (theme.background, theme.selection)}
    assert min(low.values()) >= least, min(low, key=low.__getitem__)


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("theme", [t for t in COLOURED if not t.plain], ids=lambda t: t.name)
def test_outcome_colours_are_apart(theme: ThemeFile, vision: str) -> None:
    out = theme.outcome
    seen = {c: lab(times(VISIONS[vision], linear(c))) for c in (out.passed, out.zero, out.limit, out.infra)}
    apart = {(a, b): ciede2000(seen[a], seen[b]) for a, b in itertools.combinations(seen, 2)}
    assert min(apart.values()) >= 10, min(apart, key=apart.__getitem__)


DARK = themes_dir().joinpath("dark.yaml").read_text() + "\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: [", "not YAML"),
        ("name: x", "title is missing"),
        ("- a\n- b", "a list of `key: value` lines is expected, not a list"),
        ("", "a list of `key: value` lines is expected, not nothing"),
        (DARK + "name: Very Dark", "name: use a-z, 0-9 and -"),
        (DARK + "name: 7", "name: a text is expected, not a number"),
        (
            DARK + "outcome: {pass: '#00ff00'}",
            "outcome.zero is missing",
        ),
        (
            DARK + "outcome: {pass: x, zero: red, limit: red, infra: red}",
            "outcome.pass: no colour",
        ),
        (
            themes_dir().joinpath("dark.yaml").read_text().replace("#111418", "red-ish"),
            "background: no colour: write #rrggbb",
        ),
        (
            themes_dir().joinpath("dark.yaml").read_text() + "\ncolour: blue",
            "colour is no key of a theme: there are name",
        ),
    ],
)
def test_a_bad_file_is_reported_by_name_and_skipped(tmp_path: Path, text: str, says: str) -> None:
    good = themes_dir().joinpath("light.yaml").read_text()
    tmp_path.joinpath("light.yaml").write_text(good)
    tmp_path.joinpath("broken.yaml").write_text(text)
    themes = Themes(tmp_path)
    assert len(themes.failed) == 1 and "broken.yaml" in themes.failed[0] and says in themes.failed[0]
    assert "\n" not in themes.failed[0]
    assert "light" in themes.loaded and themes.loaded["dark"] is FALLBACK


def test_roles_combine() -> None:
    palette = Palette(load_theme(themes_dir() / "dark.yaml"))
    style = palette.style("infra+selected+bold")
    assert style.bold and style.color is not None and style.bgcolor is not None
    assert palette.style("no-such-role") == palette.base


# --- the user's own, and live reload ----------------------------------------


def theme_text(name: str, background: str = "#000000") -> str:
    text = themes_dir().joinpath("dark.yaml").read_text()
    lines = [line for line in text.splitlines() if not line.startswith(("name:", "background:"))]
    return "\n".join([f"name: {name}", f'background: "{background}"', *lines]) + "\n"


def test_a_users_theme_stands_beside_the_bundled_ones_and_may_replace_one(tmp_path: Path) -> None:
    tmp_path.joinpath("mine.yaml").write_text(theme_text("mine"))
    tmp_path.joinpath("dark.yaml").write_text(theme_text("dark", "#010203"))
    themes = Themes(themes_dir(), tmp_path, tmp_path / "not-there")
    assert set(themes.loaded) == {*THEMES.loaded, "mine"} and themes.failed == []
    assert themes.loaded["dark"].background == "#010203"
    tmp_path.joinpath("later.yaml").write_text(theme_text("later"))
    assert [theme.name for theme in themes.scan()] == ["later"] and themes.scan() == []


def test_a_file_is_read_again_when_it_changes_and_told_of_once_when_it_breaks(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(theme_text("mine"))
    themes = Themes(themes_dir(), tmp_path)
    assert themes.reload("mine") is None and themes.reload("dark") is None
    path.write_text(theme_text("mine", "#0a0b0c"))
    os.utime(path, ns=(1, 1))
    found = themes.reload("mine")
    assert found is not None and found.background == "#0a0b0c" and themes.reload("mine") is None
    for content, says in (("name: [", "not YAML"), (theme_text("other"), "calls itself other now")):
        path.write_text(content)
        with pytest.raises(ValueError, match=says):
            themes.reload("mine")
        assert themes.reload("mine") is None and themes.loaded["mine"].background == "#0a0b0c"
    path.unlink()  # as an editor does for a moment
    assert themes.reload("mine") is None


async def test_the_console_follows_the_file_of_the_theme_in_use(
    tmp_path: Path, recording: Path, screen_lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    from console.records.run_dir import RunRecord
    from console.tui.app import ConsoleApp
    from console.tui.replay import ReplaySource

    path = tmp_path / "mine.yaml"
    path.write_text(theme_text("mine"))
    app = ConsoleApp(ReplaySource(RunRecord(recording), at_end=True), Themes(themes_dir(), tmp_path), "mine")

    def backgrounds() -> set[str]:
        return {
            segment.style.bgcolor.name
            for strip in app.screen._compositor.render_strips()
            for segment in strip
            if segment.style is not None and segment.style.bgcolor is not None
        }

    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert "#000000" in backgrounds()
        path.write_text(theme_text("mine", "#0a0b0c"))
        os.utime(path, ns=(1, 1))
        app._check_theme()
        await pilot.pause()
        assert "#0a0b0c" in backgrounds() and "#000000" not in backgrounds()
        path.write_text("name: [")
        app._check_theme()
        app.repaint()
        assert "theme mine.yaml: not YAML" in screen_lines(app)[-1] and app.theme == "mine"
        tmp_path.joinpath("new.yaml").write_text(theme_text("new"))
        await pilot.press("colon", *"theme new", "enter")
        await pilot.pause()
        assert app.theme == "new"
