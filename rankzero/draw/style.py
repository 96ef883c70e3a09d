"""The one style of all pictures: a light card with dark ink, readable on light and on dark ground."""

from __future__ import annotations

import base64
import io
from html import escape
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

INK = "#222222"
FAINT = "#8a8a8a"
CARD = "#fbfbf8"
#: Okabe and Ito's colours, which stay apart for colour-blind eyes.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#F0E442", "#999999")
#: kind of message → colour and hatch, so that colour is not alone
KINDS = {
    "send": (COLOURS[0], ""),
    "recv": (COLOURS[1], "///"),
    "all_reduce": (COLOURS[2], ""),
    "all_gather": (COLOURS[4], "..."),
    "reduce_scatter": (COLOURS[5], "\\\\\\"),
    "broadcast": (COLOURS[3], "xxx"),
    "reduce": (COLOURS[3], "---"),
    "gather": (COLOURS[6], "///"),
    "scatter": (COLOURS[6], "..."),
    "all_to_all": (COLOURS[5], "+++"),
    "barrier": (COLOURS[7], "|||"),
}
_DOTS_PER_INCH = 144


class Picture:
    """A picture with words for those who cannot see it.

    Attributes:
        png: the picture's bytes.
        alt: what it shows, with the numbers.
    """

    def __init__(self, figure: Figure, alt: str):
        canvas = FigureCanvasAgg(figure)
        figure.set(dpi=_DOTS_PER_INCH, facecolor=CARD)
        canvas.draw()
        # A palette keeps a picture well below 100 KB, and a notebook full of them small.
        image = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba()).convert("RGB").quantize(64)
        buffer = io.BytesIO()
        image.save(buffer, format="png", optimize=True)
        self.png = buffer.getvalue()
        self.alt = alt
        self._width = round(figure.get_figwidth() * _DOTS_PER_INCH / 2)

    def save(self, path: str | Path) -> None:
        """Write the picture to a file."""
        Path(path).write_bytes(self.png)

    def __repr__(self) -> str:
        return self.alt

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.png).decode()
        style = "max-width:100%;height:auto;border-radius:8px"
        return (
            f"<img alt='{escape(self.alt)}' width='{self._width}' style='{style}' src='data:image/png;base64,{data}'>"
        )


def card(width: float, height: float, title: str) -> tuple[Figure, Axes]:
    """An empty card of ``width`` × ``height`` inches at twice the density of a screen."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    figure.get_layout_engine().set(w_pad=0.16, h_pad=0.14)
    axes.set_facecolor(CARD)
    axes.set_title(title, color=INK, fontsize=12, loc="left", pad=10)
    axes.tick_params(colors=INK, labelsize=10, length=0)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    return figure, axes


def size_words(n_bytes: float) -> str:
    """Bytes in words, in powers of 1024: "384 KiB"."""
    for unit in ("B", "KiB", "MiB"):
        if n_bytes < 1024:
            return f"{n_bytes:.3g} {unit}" if n_bytes < 999.5 else f"{n_bytes:.0f} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:.3g} GiB"


def time_words(seconds: float) -> str:
    """Seconds in words: "35 µs", "1.2 ms"."""
    for factor, unit in ((1e6, "µs"), (1e3, "ms")):
        if seconds * factor < 999.5:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"
