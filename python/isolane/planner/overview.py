"""The page of a joint plan: who is admitted, what each has beside the others, what refused ones need, how full tiers and links are.

Problem: the pages of single plans do not say what queries do to each other. Method: one table of queries, with links to their pages,
and one of shared resources, the fullest first. Limits: no plots; a query's own page has its search and its placement.
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
    admitted = ", ".join(plan.query for plan in joint.plans) or "nobody"
    lede = f"Admitted: {admitted}."
    if sentences:
        lede += f" Refused: {', '.join(sentences)}."
    badge = '<span class="badge fail">somebody is refused</span>' if sentences else '<span class="badge pass">all fit</span>'
    rows = "".join(query_row(plan, joint.alone[plan.query], queries[plan.query], plan.query in running) for plan in joint.plans)
    rows += "".join(refused_row(name, text, queries[name]) for name, text in sentences.items())
    exact = "" if joint.exact else "<p>The search for joint plans ended early: there may be a better one.</p>\n"
    body = (
        f'<main id="main">\n<header>\n<p class="kicker">Joint plan of {len(joint.plans) + len(sentences)} queries</p>\n'
        f'<h1>Queries on the same tiers</h1>\n{badge}\n<p class="lede">{escape(lede)}</p>\n</header>\n'
        '<section id="queries">\n<h2>Queries</h2>\n<p>Latency beside the others counts what their items make it wait.</p>\n'
        f"{exact}{table(('query', 'priority', 'tiers', 'accuracy', 'latency beside the others', 'alone', 'what changes'), rows)}"
        "</section>\n"
        '<section id="loads">\n<h2>What all of them use together</h2>\n'
        f"{table(('resource', 'kind', 'in use'), ''.join(load_row(one) for one in fullest(joint)))}</section>\n</main>"
    )
    return page("Joint plan", lede, body, {"steps": []})


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
    return f'<tr><th scope="row">{link}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


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
