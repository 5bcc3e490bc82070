"""What tests of Gantry, and of programs that use it, run on: a clock without waiting, and more.

`simulate` tries handlers; the fixture `gantry`, a platform for each test, comes with the plug-in
for pytest. The names here are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gantrymq.testing.kit import AsyncGantry as AsyncGantry
    from gantrymq.testing.kit import Gantry as Gantry
    from gantrymq.testing.simulation import Faults as Faults
    from gantrymq.testing.simulation import Simulation as Simulation
    from gantrymq.testing.simulation import simulate as simulate

_PLACES: Final = {
    "AsyncGantry": "gantrymq.testing.kit",
    "Gantry": "gantrymq.testing.kit",
    "Faults": "gantrymq.testing.simulation",
    "Simulation": "gantrymq.testing.simulation",
    "simulate": "gantrymq.testing.simulation",
}

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(place), name)
