"""The page of a joint plan: who is admitted, what each has beside the others, what refused ones need, how full tiers and links are.

Problem: the pages of single plans do not say what queries do to each other. Method: one table of queries, with links to their pages,
and one of shared resources, the fullest first, which a plot shows. Limits: a query's own page has its search and its placement.
"""

from __future__ import annotations

from collections.abc import Mapping

from isolane.planner import multi
from isolane.planner.model import Plan, Query
from isolane.planner.plots import number
from isolane.planner.report import escape, milliseconds, page, percent, sentence, tier_words

#: The file beside the pages of the admitted queries.
FILE = "index.html"


def render(joint: multi.JointPlan, queries: Mapping[str, Query], sentences: Mapping[str, str], running: tuple[str, ...]) -> str:
    """The whole file; `sentences` say of each refused query why, and what would help."""
    verdict = judged(joint, sentences)
    badge = '<span class="badge fail">a query is rejected</span>' if sentences else '<span class="badge pass">all fit</span>'
    rows = "".join(query_row(plan, joint.alone[plan.query], queries[plan.query], plan.query in running) for plan in joint.plans)
    rows += "".join(refused_row(name, text, queries[name]) for name, text in sentences.items())
    exact = "" if joint.exact else "<p>The search for joint plans ended early: there may be a better one.</p>\n"
    body = (
        f'<main id="main">\n<header>\n<p class="kicker">Joint plan of {len(joint.plans) + len(sentences)} queries</p>\n'
        f'<h1>Queries on the same tiers</h1>\n{badge}\n<p class="verdict">{escape(verdict)}</p>\n</header>\n'
        f'<div class="opening"><figure data-name="joint-plan"><figcaption><b>What all of them use together</b></figcaption>'
        f"{load_bars(joint)}</figure></div>\n"
        '<section id="queries">\n<h2>Queries</h2>\n<p>Latency beside the others counts what their items make it wait.</p>\n'
        f"{exact}{table(('query', 'priority', 'tiers', 'accuracy', 'latency beside the others', 'alone', 'what changes'), rows)}"
        "</section>\n"
        '<section id="loads">\n<h2>What all of them use together</h2>\n'
        f"{table(('resource', 'kind', 'in use'), ''.join(load_row(one) for one in fullest(joint)))}</section>\n</main>"
    )
    return page("Joint plan", verdict, body, {"steps": []})


def judged(joint: multi.JointPlan, sentences: Mapping[str, str]) -> str:
    """Who is refused, and how full the fullest resource is, in one sentence."""
    admitted = [plan.query for plan in joint.plans]
    if sentences:
        who = f"{', '.join(sentences)} {'is' if len(sentences) == 1 else 'are'} refused beside {', '.join(admitted) or 'no query'}"
    else:
        who = f"All {len(admitted)} queries fit ({', '.join(admitted)})"
    used = fullest(joint)
    full = f": the fullest resource, {used[0].resource} ({used[0].kind}), is {percent(used[0].share)} used" if used else ""
    return f"{who}{full}."


#: Resources that the plot shows; the table has all.
BARS_MAX = 8
#: Sizes of the plot, pixels.
BARS_WIDTH, BAR_LEFT, BAR_RIGHT, BAR_PITCH = 420.0, 170.0, 360.0, 20.0


def load_bars(joint: multi.JointPlan) -> str:
    """A bar per resource up to its capacity, the fullest first."""
    used = fullest(joint)[:BARS_MAX]
    bottom = 6.0 + BAR_PITCH * len(used)
    marks = []
    for part in (0, 25, 50, 75, 100):
        x = BAR_LEFT + (BAR_RIGHT - BAR_LEFT) * part / 100.0
        marks.append(f'<path class="{"axis" if part == 0 else "grid"}" d="M{x:.1f} 2L{x:.1f} {bottom:.1f}"/>')
        marks.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 14.0:.1f}" text-anchor="middle">{part}</text>')
    for index, load in enumerate(used):
        top = 4.0 + BAR_PITCH * index
        width = max((BAR_RIGHT - BAR_LEFT) * min(load.share, 1.0), 1.0)
        name = f"{load.resource}, {load.kind}"
        cut = name if len(name) <= 26 else f"{name[:25]}…"
        marks.append(f'<rect class="bar f1" x="{BAR_LEFT:.1f}" y="{top:.1f}" width="{width:.1f}" height="13"/>')
        marks.append(f'<text class="tick" x="{BAR_LEFT - 6.0:.1f}" y="{top + 10.5:.1f}" text-anchor="end">{escape(cut)}</text>')
        marks.append(f'<text class="value" x="{BAR_LEFT + width + 5.0:.1f}" y="{top + 10.5:.1f}">{percent(load.share)}</text>')
    middle = (BAR_LEFT + BAR_RIGHT) / 2.0
    marks.append(f'<text class="axis-title" x="{middle:.1f}" y="{bottom + 31.0:.1f}" text-anchor="middle">in use, %</text>')
    height = bottom + 36.0
    return (
        f'<svg class="plot" role="img" aria-label="how full each resource is" viewBox="0 0 {BARS_WIDTH:g} {height:g}" '
        f'width="{BARS_WIDTH:g}" height="{height:g}" xmlns="http://www.w3.org/2000/svg">{"".join(marks)}</svg>'
    )


def table(heads: tuple[str, ...], rows: str) -> str:
    """A table that scrolls by itself on a narrow screen."""
    cells = "".join(f'<th scope="col">{head}</th>' for head in heads)
    return (
        f'<div class="scroller"><table class="plain"><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table></div>\n'
    )


def query_row(plan: Plan, alone: Plan, query: Query, runs: bool) -> str:
    """An admitted query."""
    link = f'<a href="{escape(plan.query)}.html">{escape(plan.query)}</a>{" (running)" if runs else ""}'
    cells = [
        str(query.priority),
        escape(tier_words(plan)),
        f"{number(plan.accuracy)} of {number(query.accuracy_min)}",
        f"{milliseconds(plan.latency_ms)} of {milliseconds(query.latency_max_ms)}",
        milliseconds(alone.latency_ms),
        escape(sentence(plan.why)),
    ]
    plain = "".join(f"<td>{cell}</td>" for cell in cells[:-1])
    return f'<tr><th scope="row">{link}</th>{plain}<td class="wide">{cells[-1]}</td></tr>'


def refused_row(name: str, text: str, query: Query) -> str:
    """One that does not fit, and what would let it in."""
    return (
        f'<tr><th scope="row">{escape(name)}</th><td>{query.priority}</td>'
        f'<td colspan="5">refused: {escape(text)}.</td></tr>'
    )


def fullest(joint: multi.JointPlan) -> list[multi.Load]:
    """Resources that are used, the fullest first."""
    return sorted((one for one in joint.loads if one.share > 0.0), key=lambda one: (-one.share, one.kind, one.resource))


def load_row(load: multi.Load) -> str:
    """A resource."""
    return f'<tr><th scope="row">{escape(load.resource)}</th><td>{escape(load.kind)}</td><td>{percent(load.share)}</td></tr>'
