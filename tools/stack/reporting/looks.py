# SPDX-License-Identifier: Apache-2.0
"""The letter, the meaning and the colours of each outcome, and the style of the HTML page.

No meaning rests on colour alone: each outcome has its letter, and what needs a person has a border. The colours are after Okabe and
Ito, whose palette can be told apart with each kind of colour blindness.
"""

from dataclasses import dataclass

from stack.carry.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Look:
    """How an outcome looks. `light` and `dark` are the colours of ground and letter in each scheme."""

    letter: str
    meaning: str
    light: tuple[str, str]
    dark: tuple[str, str]


LOOKS = {
    Outcome.CLEAN: Look("c", "carried, at the same lines", ("#e4e8e6", "#3d4743"), ("#2b3330", "#b9c4bf")),
    Outcome.MOVED: Look("m", "carried, at other lines", ("#cfe3da", "#1f4435"), ("#23443a", "#bfe3d4")),
    Outcome.LANDED: Look("L", "upstream has all of it", ("#0072b2", "#ffffff"), ("#3f9bd8", "#06121b")),
    Outcome.PARTLY_LANDED: Look("P", "upstream has a part of it", ("#a6d3f2", "#0b3150"), ("#1d4d70", "#d3ecff")),
    Outcome.DROPPED_UPSTREAM: Look("U", "upstream had it and dropped it again", ("#f0e442", "#33300a"), ("#c9be2a", "#1a1803")),
    Outcome.RESOLVED: Look("r", "a conflict that was resolved", ("#e6bcd3", "#4f1737"), ("#6b3352", "#ffdcee")),
    Outcome.RELOCATED: Look("n", "carried to another file, as its code moved", ("#b898e6", "#1f0a38"), ("#7b57bd", "#ffffff")),
    Outcome.DRIFTED: Look("D", "applies, but what it relies on has changed", ("#e69f00", "#2e2000"), ("#d99a17", "#1d1400")),
    Outcome.CONFLICT: Look("X", "in conflict", ("#b84300", "#ffffff"), ("#ff8a4c", "#2a0e00")),
}


def _rules(place: int) -> str:
    """Return the colours of the outcomes in one scheme (0: light, 1: dark)."""
    rules = []
    for outcome, look in LOOKS.items():
        ground, letter = (look.light, look.dark)[place]
        rules.append(f".o-{outcome.value}{{background:{ground};color:{letter}}}")
    return "".join(rules)


_LIGHT = (
    "--page:#fff;--text:#1c2321;--quiet:#58625e;--line:#cfd6d3;--soft:#f5f7f6;--link:#005a8c;--curve:#0072b2;--open:#1c2321"
)
_DARK = "--page:#141917;--text:#e4eae7;--quiet:#a2aea9;--line:#39433f;--soft:#1c2220;--link:#7cc0ef;--curve:#5fb0e5;--open:#fff"

STYLE = (
    f":root{{color-scheme:light dark;{_LIGHT}}}{_rules(0)}"
    f"@media (prefers-color-scheme:dark){{:root{{{_DARK}}}{_rules(1)}}}"
    """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0 auto;padding:1.5rem clamp(.8rem,3vw,2.5rem) 4rem;max-width:90rem;background:var(--page);color:var(--text);
 font:16px/1.5 system-ui,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.6rem;line-height:1.25;margin:0 0 .3rem}
h2{font-size:1.2rem;margin:2.6rem 0 .5rem;padding-top:1rem;border-top:1px solid var(--line)}
h3{font-size:1rem;margin:1.4rem 0 .4rem}
p{margin:.4rem 0;max-width:75ch}
a{color:var(--link)}
code,.name{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.86em}
.quiet{color:var(--quiet)}
.sr{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
.skip{position:absolute;left:-99rem}
.skip:focus{position:static}
nav ul{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;list-style:none;padding:0;margin:.8rem 0 0}
.scroll{overflow-x:auto;max-width:100%;position:relative}
.scroll:focus-visible,a:focus-visible,summary:focus-visible{outline:2px solid var(--link);outline-offset:2px}
table{border-collapse:collapse;font-size:.92rem}
caption{text-align:left;color:var(--quiet);padding-bottom:.4rem}
th,td{text-align:left;vertical-align:top;padding:.3rem .9rem .3rem 0;border-bottom:1px solid var(--line)}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.fixed{white-space:nowrap}
table.wide th{overflow-wrap:normal}
.legend{display:flex;flex-wrap:wrap;gap:.35rem 1.2rem;list-style:none;padding:0;margin:.7rem 0 1rem;font-size:.9rem}
.legend li{display:flex;align-items:baseline;gap:.45rem}
.chip{display:inline-block;min-width:1.55rem;padding:0 .3rem;text-align:center;border-radius:.2rem;font-weight:600;
 font-size:.82rem;line-height:1.5rem;print-color-adjust:exact;-webkit-print-color-adjust:exact}
.chip:empty::after{content:"\\00a0"}
.heat{border-collapse:separate;border-spacing:2px;font-size:.85rem;line-height:1.3}
.heat th,.heat td{border:0;padding:0}
.heat td{width:1.75rem;min-width:1.75rem;height:1.6rem;text-align:center;vertical-align:middle;border-radius:.2rem;font-weight:600;
 print-color-adjust:exact;-webkit-print-color-adjust:exact}
.heat td.none{color:var(--quiet);font-weight:400}
.heat .open,.chip.open{box-shadow:inset 0 0 0 2px var(--open)}
.heat tbody th,.heat .corner{position:sticky;left:0;z-index:1;background:var(--page);font-weight:400;padding-right:.7rem;
 max-width:min(34rem,46vw)}
.heat tbody th{overflow:hidden;text-overflow:ellipsis;white-space:nowrap;vertical-align:middle}
.heat tbody th a{text-decoration:none}
.heat tbody th a:hover{text-decoration:underline}
.heat tbody th strong{font-weight:600}
.heat thead th{vertical-align:bottom;font-weight:500}
.heat thead .release div{writing-mode:vertical-rl;transform:rotate(180deg);white-space:nowrap;max-height:11rem;overflow:hidden;
 line-height:1.75rem;margin:0 auto}
@media (min-width:900px){
.heat.few td{width:3.7rem}
.heat.few thead .release{text-align:center;vertical-align:bottom}
.heat.few thead .release div{writing-mode:horizontal-tb;transform:none;line-height:1.3}
}
.heat td.result,.heat.few td.result{width:auto;text-align:left;padding:0 .5rem;white-space:nowrap;font-weight:500}
.heat tbody.group th.series{padding-top:.55rem;color:var(--quiet)}
.cards{list-style:none;padding:0;margin:0}
details{border-bottom:1px solid var(--line);padding:.3rem 0}
summary{cursor:pointer}
details ul{margin:.4rem 0 .3rem;padding-left:1.6rem}
details li li{color:var(--quiet)}
:target{scroll-margin-top:1rem}
:target summary,summary:target{background:var(--soft)}
svg{display:block;margin:.6rem 0;fill:var(--text);font:13px system-ui,"Segoe UI",Roboto,Arial,sans-serif}
svg.chart{width:100%;max-width:34rem;height:auto}
svg .axis{stroke:var(--line);fill:none}
svg .tick{fill:var(--quiet)}
svg .curve{stroke:var(--curve);stroke-width:2;fill:none;vector-effect:non-scaling-stroke}
svg .area{fill:var(--curve);opacity:.16}
svg .bar{fill:var(--curve)}
svg .box{fill:var(--soft);stroke:var(--quiet)}
svg .box.merged{stroke:var(--curve);stroke-width:2}
svg .edge{stroke:var(--quiet);fill:none;stroke-width:1.5}
svg .head{fill:var(--quiet)}
svg .strong{font-weight:600}
footer{margin-top:3rem;color:var(--quiet);font-size:.88rem}
@media (max-width:480px){
body{font-size:15px}
table.wide,table.wide tbody,table.wide tr,table.wide td,table.wide th{display:block}
table.wide thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
table.wide tr{padding:.5rem 0;border-bottom:1px solid var(--line)}
table.wide th,table.wide td,table.wide td.number{border:0;padding:.05rem 0;text-align:left;white-space:normal}
table.wide td[data-label]:not(:empty)::before{content:attr(data-label) ": ";color:var(--quiet)}
.heat td{min-width:1.6rem}
.heat tbody th,.heat .corner{max-width:42vw;padding-right:.4rem}
}
@media print{
:root{"""
    + _LIGHT
    + """}
"""
    + _rules(0)
    + """
body{max-width:none;padding:0;font-size:10pt}
nav,.skip{display:none}
.scroll{overflow:visible}
.heat{font-size:7pt}
.heat tbody th,.heat .corner{position:static;white-space:normal;max-width:14rem}
tr,li,svg{break-inside:avoid}
h2{break-after:avoid}
details::details-content{content-visibility:visible;block-size:auto;height:auto}
}
"""
)
