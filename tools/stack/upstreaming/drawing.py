# SPDX-License-Identifier: Apache-2.0
"""Draw a plan as a graph: a tree in text, and boxes in SVG with a column for each wave.

Graphviz is not used: it is a program to install, and the waves are the layers of the graph already.
"""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from stack.upstreaming.proposal import Proposal, UpstreamPlan

_WIDTH, _GAP, _ACROSS, _MARGIN, _LINE, _PAD = 330, 14, 90, 24, 17, 9
"""In pixels: width of a box, gap between boxes, gap between columns, margin, height of a text line, padding in a box."""
_LETTERS = 46
"""Characters of a line in a box."""
_STYLE = """
  text { font: 12px ui-sans-serif, system-ui, sans-serif; fill: #111827; }
  .paper { fill: #ffffff; }
  .box { fill: #f3f5f8; stroke: #64748b; }
  .quiet { fill: #52606d; }
  .head { font-weight: 600; font-size: 14px; }
  .need { fill: none; stroke: #64748b; stroke-width: 1.5; }
  .tip { fill: #64748b; }
  .fails { stroke: #b42318; stroke-width: 2; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .paper { fill: #11161d; }
    .box { fill: #1d2530; stroke: #8ea0b5; }
    .quiet { fill: #9fb0c0; }
    .need { stroke: #8ea0b5; }
    .tip { fill: #8ea0b5; }
    .fails { stroke: #ff8a7a; }
  }
"""


def tree(plan: UpstreamPlan) -> Iterator[str]:
    """Draw the pull requests that depend on each other as a tree; count the others.

    A pull request that needs several stands below the one of the latest wave, and its line names the rest.
    """
    waves = {proposal.name: proposal.wave for proposal in plan.proposals}
    below: dict[str, list[Proposal]] = {}
    for proposal in plan.proposals:
        if proposal.needs:
            below.setdefault(max(proposal.needs, key=lambda name: waves.get(name, 0)), []).append(proposal)
    needed = {name for proposal in plan.proposals for name in proposal.needs}
    roots = [proposal for proposal in plan.proposals if not proposal.needs and proposal.name in needed]
    for root in roots:
        yield root.name
        yield from _branches(root, below, "")
    idle = sum(not proposal.needs and proposal.name not in needed for proposal in plan.proposals)
    if idle:
        others = f"{idle} other{'s' if idle > 1 else ''}" if roots else str(idle)
        yield f"{others} {'stands' if idle == 1 else 'stand'} alone, and nothing needs {'it' if idle == 1 else 'them'}"


def _branches(above: Proposal, below: Mapping[str, Sequence[Proposal]], indent: str) -> Iterator[str]:
    children = below.get(above.name, ())
    for place, child in enumerate(children):
        last = place == len(children) - 1
        others = [name for name in child.needs if name != above.name]
        yield f"{indent}{'└─' if last else '├─'} {child.name}{f' (needs {_and(others)}, too)' if others else ''}"
        yield from _branches(child, below, indent + ("   " if last else "│  "))


def _and(names: Sequence[str]) -> str:
    return " and ".join(names)


@dataclass(frozen=True, slots=True)
class _Box:
    proposal: Proposal
    x: int
    y: int
    lines: tuple[str, ...]

    @property
    def height(self) -> int:
        return 2 * _PAD + _LINE * (1 + len(self.lines))

    @property
    def middle(self) -> int:
        return self.y + self.height // 2


def svg(plans: Sequence[UpstreamPlan]) -> str:
    """Draw the graphs of some plans, one below the other, as an SVG document that follows the reader's light or dark colours."""
    drawn: list[str] = []
    top, right = _MARGIN, 0
    for plan in plans:
        drawn.append(_text(_MARGIN, top + _LINE, f"{plan.upstream} {plan.onto}", "head"))
        boxes = _placed(plan, top + 2 * _LINE)
        drawn += _drawn(plan, boxes)
        right = max([right, *(box.x + _WIDTH for box in boxes.values())])
        top = max([top + 2 * _LINE, *(box.y + box.height for box in boxes.values())]) + 2 * _MARGIN
    width, height = max(right, _WIDTH) + _MARGIN, top
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(', '.join(f'{plan.upstream} {plan.onto}' for plan in plans))}</title>",
            f"<style>{_STYLE}</style>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">',
            '<path class="tip" d="M0 0 L8 4 L0 8 z"/></marker></defs>',
            f'<rect class="paper" width="{width}" height="{height}"/>',
            *drawn,
            "</svg>\n",
        )
    )


def _placed(plan: UpstreamPlan, top: int) -> dict[str, _Box]:
    """Place a plan's boxes: a column for each wave, each box as near to its needs as possible. Returns the boxes by name."""
    boxes: dict[str, _Box] = {}
    for column, wave in enumerate(plan.waves):
        y = top + _LINE

        def wish(proposal: Proposal) -> int:
            places = [boxes[name].middle for name in proposal.needs if name in boxes]
            return sum(places) // len(places) if places else 0

        for proposal in sorted(wave, key=wish):
            lines = tuple(textwrap.wrap(proposal.slug.replace("-", " "), _LETTERS)) or (proposal.slug,)
            box = _Box(proposal, _MARGIN + column * (_WIDTH + _ACROSS), y, lines)
            lower = max(y, wish(proposal) - box.height // 2)
            boxes[proposal.name] = box = _Box(proposal, box.x, lower, lines)
            y = box.y + box.height + _GAP
    return boxes


def _drawn(plan: UpstreamPlan, boxes: Mapping[str, _Box]) -> Iterator[str]:
    columns = sorted({box.x for box in boxes.values()})
    tops = {x: min(box.y for box in boxes.values() if box.x == x) for x in columns}
    for number, x in enumerate(columns, 1):
        yield _text(x, tops[x] - 6, f"wave {number}", "quiet")
    for proposal in plan.proposals:
        for name, why in zip(proposal.needs, proposal.why, strict=True):
            start, end = boxes[name], boxes[proposal.name]
            x1, x2 = start.x + _WIDTH, end.x
            bend = (x2 - x1) // 2
            path = f"M{x1} {start.middle} C{x1 + bend} {start.middle} {x2 - bend} {end.middle} {x2} {end.middle}"
            yield f'<path class="need" marker-end="url(#tip)" d="{path}"><title>{escape(why)}</title></path>'
    for box in boxes.values():
        proposal = box.proposal
        state = proposal.proof.state.value if proposal.proof is not None else ""
        yield (
            f'<g><title>{escape(proposal.name)}</title><rect class="box{" fails" if state == "fails" else ""}" '
            f'x="{box.x}" y="{box.y}" width="{_WIDTH}" height="{box.height}" rx="6"/>'
        )
        head = f"{proposal.series}{f' · tests: {state}' if state else ''}"
        yield _text(box.x + _PAD, box.y + _PAD + 12, head, "quiet")
        for number, line in enumerate(box.lines, 1):
            yield _text(box.x + _PAD, box.y + _PAD + 12 + number * _LINE, line)
        yield "</g>"


def _text(x: int, y: int, words: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}"{named}>{escape(words)}</text>'
