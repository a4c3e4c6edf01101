"""Lines of SVG in, a picture out: plain shapes, the same text every time."""

import html
from collections.abc import Iterable, Sequence

# A card of its own colours, so that it can be read on light and dark pages.
_INK, SOFT, _CARD, _EDGE, GREY = (
  "#1b1f24",
  "#57606a",
  "#ffffff",
  "#8c959f",
  "#d0d7de",
)
# By cp rank, and by tp rank within it.
COLOURS = (
  ("#a8d1f7", "#5fa8e8"),
  ("#fdc58a", "#f0913a"),
  ("#b4e0b0", "#6cbf65"),
  ("#dcc3ee", "#b385d6"),
)
_WIDTH = 900
_STYLE = (
  f"text{{fill:{_INK};font-size:15px}}rect{{stroke:{_EDGE}}}"
  ".n{font-size:14px;text-anchor:middle}"
)


def text(
  x: float,
  y: float,
  said: str,
  *,
  size: int = 15,
  anchor: str = "start",
  colour: str = _INK,
  bold: bool = False,
) -> str:
  """Draws a line of text whose baseline begins, ends or is centred at x, y."""
  style = [
    *([f"font-size:{size}px"] if size != 15 else []),
    *([f"text-anchor:{anchor}"] if anchor != "start" else []),
    *([f"fill:{colour}"] if colour != _INK else []),
    *(["font-weight:bold"] if bold else []),
  ]
  how = f' style="{";".join(style)}"' if style else ""
  return f'<text x="{x:g}" y="{y:g}"{how}>{html.escape(said)}</text>'


def number(x: float, y: float, said: str) -> str:
  """Draws a number whose baseline is centred at x, y."""
  return f'<text class="n" x="{x:g}" y="{y:g}">{html.escape(said)}</text>'


def box(x: float, y: float, w: float, h: float, fill: str) -> str:
  """Draws a rectangle from its upper left corner."""
  return (
    f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" fill="{fill}"/>'
  )


def line(points: Sequence[tuple[float, float]], *, width: float = 3) -> str:
  """Draws a line through points."""
  said = " ".join(f"{x:g},{y:g}" for x, y in points)
  return (
    f'<polyline points="{said}" fill="none" stroke="{_INK}"'
    f' stroke-width="{width:g}"/>'
  )


def arrow(
  begin: tuple[float, float], end: tuple[float, float], *, dashed: bool = False
) -> str:
  """Draws an arrow."""
  (a, b), (c, d) = begin, end
  dashes = ' stroke-dasharray="6 4"' if dashed else ""
  return (
    f'<path d="M{a:g} {b:g}L{c:g} {d:g}" fill="none" stroke="{_INK}"'
    f' stroke-width="1.5"{dashes} marker-end="url(#tip)"/>'
  )


def cells(
  corner: tuple[float, float],
  size: tuple[int, int],
  *,
  numbers: Sequence[int],
  fills: Sequence[str],
  edges: Sequence[int] = (),
) -> list[str]:
  """Draws a row of cells; thick lines stand before the cells of `edges`."""
  (x, y), (w, h) = corner, size
  found = []
  for i, (said, fill) in enumerate(zip(numbers, fills)):
    found.append(box(x + i * w, y, w, h, fill))
    found.append(number(x + (i + 0.5) * w, y + h / 2 + 5, str(said)))
  return found + [
    line([(x + i * w, y - 2), (x + i * w, y + h + 2)]) for i in edges
  ]


def picture(title: str, height: int, shapes: Iterable[str]) -> str:
  """Returns a picture of shapes below a title."""
  return "\n".join(
    [
      f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}"'
      f' height="{height}" viewBox="0 0 {_WIDTH} {height}"'
      ' font-family="Helvetica, Arial, sans-serif" role="img">',
      f"<title>{html.escape(title)}</title>",
      f"<style>{_STYLE}</style>",
      '<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8"'
      f' markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="{_INK}"/>'
      "</marker>",
      box(0.5, 0.5, _WIDTH - 1, height - 1, _CARD),
      text(24, 36, title, size=20, bold=True),
      *shapes,
      "</svg>\n",
    ]
  )
