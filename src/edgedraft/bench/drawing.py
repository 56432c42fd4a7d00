"""How the reports draw: SVG to be put into HTML. Needs matplotlib, which is loaded when the first picture is drawn.

Lines and letters take the page's own colour, so that the pictures follow its light or dark look.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from edgedraft.errors import UnsupportedError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#010203"
"""Replaced by currentColor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """`caption`: how to read it. `svg`: an element, ready for HTML."""

    id: str
    title: str
    caption: str
    svg: str


@contextmanager
def report_style() -> Iterator[None]:
    """Everything is drawn in here. Raises `UnsupportedError` where matplotlib is not installed."""
    with _matplotlib().rc_context(_style()):
        yield


def _matplotlib() -> ModuleType:
    try:
        import matplotlib
    except ImportError as error:
        raise UnsupportedError(
            "matplotlib is not installed, which draws the report's pictures.",
            field="report",
            remedy="Install it: pip install 'edgedraft[bench]'.",
        ) from error
    return matplotlib


def _style() -> dict[str, Any]:
    ink = ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color")
    plain = {"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9}
    return {**dict.fromkeys(ink, INK), **plain, "axes.spines.top": False, "axes.spines.right": False}


def new_figure(width_inches: float, height_inches: float) -> Figure:
    """A figure of its own, outside pyplot's global state."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width_inches, height_inches), layout="constrained")


def picture_of(figure: Figure, id_: str, title: str, caption: str) -> Picture:
    buffer = io.StringIO()
    with _matplotlib().rc_context({"svg.hashsalt": id_}):  # the same picture each time
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    prefix = re.sub(r"\W", "-", id_)  # keeps the ids of several pictures in one page apart
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    svg = re.sub(r' width="[\d.]+pt"| height="[\d.]+pt"', "", svg, count=2)
    return Picture(id=id_, title=title, caption=caption, svg=svg)


def draw_line(axes: Axes, points: Sequence[tuple[float, float]], label: str, colour: str, style: str = "o-") -> None:
    axes.plot(*zip(*points, strict=True), style, color=colour, markersize=3, linewidth=1.3, label=label)


def draw_legend(figure: Figure, axes: Axes, columns: int = 6) -> None:
    """What the lines of `axes` are, under the whole figure."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=8, labelcolor=INK)
