"""Rebinding of attributes of a library that has no extension point: one way to do it, undone in any order."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self


class Seam:
    """Wrappers put around attributes of classes and modules, until `undo` or the end of the `with` block.

    Others may wrap the same attributes before or after: a wrapper that is undone beneath another one stays there and
    passes on, and goes with that other one if it is of this kind, too.
    """

    def __init__(self) -> None:
        self._layers: list[_Layer] = []

    def wrap(self, owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Put `make(what is there)` in the place of `owner.name`.

        Raises:
            AttributeError: `owner` has no such attribute.
        """
        self._layers.append(_Layer(owner, name, make))

    def undo(self) -> None:
        """Take all wrappers away, the last one first; a second call changes nothing."""
        while self._layers:
            self._layers.pop().end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()


class _Layer:
    """One wrapper."""

    def __init__(self, owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._owner, self._name = owner, name
        self._own = name in vars(owner)
        self._before = before = getattr(owner, name)
        changed, self._active = make(before), True

        @functools.wraps(before)
        def through(*args: Any, **kwargs: Any) -> Any:
            return (changed if self._active else before)(*args, **kwargs)

        through._layer = self  # type: ignore[attr-defined]
        setattr(owner, name, through)

    def end(self) -> None:
        self._active = False
        layer: _Layer | None = self
        while (layer := getattr(vars(self._owner).get(self._name), "_layer", None)) and not layer._active:
            if layer._own:
                setattr(self._owner, self._name, layer._before)
            else:
                delattr(self._owner, self._name)
