"""A plan as one HTML file: what was chosen and why, where operators run, how the search went, what else there was.

Problem: a plan has more to it than a table shows. The file needs no network, works on a phone, in the dark and from the
keyboard, and looks like the reports of the Rust program, which includes the style sheet and the script of this folder.
Units are with every number. Method: text from outside passes `escape` on its way into markup and `embed` on its way into a
script; there is no other way. Limits: a search of more than `plots.POINTS_MAX` steps shows some of them, and states this.
"""

from __future__ import annotations

import html
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from isolane.planner.model import Infrastructure, Plan, Query, Settings, Step, Unmet, Value
from isolane.planner.plots import POINTS_MAX, drawn, number, pareto, search_path

ASSETS = pathlib.Path(__file__).resolve().parent / "assets"

#: Nothing is fetched: styles and scripts are the page's own.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none'"
)

MARK = (
    '<svg viewBox="0 0 20 20" width="20" height="20" aria-hidden="true">'
    '<rect class="mark-a" x="1" y="2" width="18" height="4" rx="2"/>'
    '<rect class="mark-b" x="1" y="8" width="11" height="4" rx="2"/>'
    '<rect class="mark-a" x="1" y="14" width="18" height="4" rx="2"/></svg>'
)


def escape(text: str) -> str:
    """Text made safe for element content and double-quoted attributes; controls become the replacement character."""
    kept = "".join(each if each.isprintable() or each in "\n\t \u202f" else "\ufffd" for each in text)
    return html.escape(kept)


def embed(value: Any) -> str:
    """JSON for a script element: no end tag and no comment can begin in it."""
    text = json.dumps(value, separators=(",", ":"), sort_keys=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def percent(part: float) -> str:
    """A part of 1 as people read it."""
    return f"{number(100.0 * part)} %"


def setting(value: Value) -> str:
    """A value of a knob; fractions with four significant digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def milliseconds(value: float) -> str:
    """A latency."""
    return f"{number(value)} ms" if math.isfinite(value) else "never"


#: Heading and column of what a plan is compared with.
RUNNER_UP = ("Why the second-best plan lost", "the second-best plan")


def render(
    plan: Plan,
    query: Query,
    infrastructure: Infrastructure,
    command: str = "",
    other: tuple[str, str] = RUNNER_UP,
    unmet: Unmet | None = None,
) -> str:
    """The whole file; `command` gives it again, `other` names what the plan is compared with, `unmet` has why it misses the objectives."""
    title = f"Plan for {plan.query}"
    steps, where = shown(plan.path)
    body = "\n".join(
        [
            '<main id="main">',
            header(plan, query),
            cards(plan, query),
            *([] if unmet is None else [remedies(unmet)]),
            placement(plan, query, infrastructure),
            search(plan, query, infrastructure, steps, where),
            settings_table(plan, query),
            runner_up(plan, *other),
            method(plan, command),
            "</main>",
        ]
    )
    data = {"steps": [described(query, infrastructure, step, index) for step, index in zip(steps, where, strict=True)]}
    return page(title, verdict(plan, query), body, data)


def shown(path: Sequence[Step]) -> tuple[list[Step], list[int]]:
    """The steps on the page and their numbers in the search, from 0."""
    where = drawn(path)
    return [path[index] for index in where], where


def page(title: str, description: str, body: str, data: Mapping[str, Any]) -> str:
    """The frame that all pages have."""
    style = "".join((ASSETS / name).read_text(encoding="utf-8") for name in ("style.css", "plan.css"))
    scripts = "".join(
        f"<script>\n{(ASSETS / name).read_text(encoding='utf-8')}</script>\n" for name in ("shared.js", "plan.js")
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_SECURITY_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta name="description" content="{escape(description)}">\n<title>{escape(title)}</title>\n'
        f'<link rel="icon" href="data:,">\n<style>\n{style}</style>\n</head>\n<body>\n'
        '<a class="skip" href="#main">Skip to the results</a>\n'
        f'<div class="bar"><span class="mark">{MARK}Isolane</span>'
        '<span class="bar-buttons"><button type="button" id="theme" class="quiet">Theme</button>'
        '<button type="button" id="print" class="quiet">Print</button></span></div>\n'
        f"{body}\n<footer>Made by Isolane. Everything is in this file; it needs no network.</footer>\n"
        f'<script type="application/json" id="data">{embed(data)}</script>\n{scripts}</body>\n</html>\n'
    )


def verdict(plan: Plan, query: Query) -> str:
    """One sentence: where the models run, and whether the objectives hold."""
    models = [name for name in plan.order if query.operator(name).kind == "model"]
    places = " and ".join(f"{name} on {plan.placement[name]}" for name in models)
    promise = f"accuracy {number(plan.accuracy)} within {milliseconds(plan.latency_ms)}"
    objectives = f"{number(query.accuracy_min)} within {milliseconds(query.latency_max_ms)}"
    if plan.meets:
        return f"{places}: {promise}, as asked ({objectives})."
    return f"No plan meets {objectives}; the nearest runs {places}, with {promise}."


def header(plan: Plan, query: Query) -> str:
    """Title and verdict."""
    badge = '<span class="badge pass">meets both objectives</span>'
    if not plan.meets:
        badge = '<span class="badge fail">misses an objective</span>'
    return (
        f'<header>\n<p class="kicker">Query plan · searcher {escape(plan.searcher)} · seed {plan.seed}</p>\n'
        f"<h1>{escape(plan.query)}</h1>\n{badge}\n"
        f'<p class="verdict">{escape(verdict(plan, query))}</p>\n</header>'
    )


def cards(plan: Plan, query: Query) -> str:
    """The numbers that a plan is judged by."""
    accuracy_ok = plan.accuracy >= query.accuracy_min
    latency_ok = plan.latency_ms <= query.latency_max_ms
    parts = [
        card("Accuracy", number(plan.accuracy), "", f"At least {number(query.accuracy_min)} is asked.", accuracy_ok),
        card(
            "Latency",
            number(plan.latency_ms),
            "ms",
            f"At most {milliseconds(query.latency_max_ms)} is asked. 99th percentile: "
            f"{milliseconds(plan.latency_p99_ms)}.",
            latency_ok,
        ),
        card("Utility", number(plan.utility), "", "Performance (accuracy and latency beyond the objectives) over resources; no unit.", True),
        card(
            "Network",
            number(100.0 * sum(plan.network_share.values())),
            "%",
            "Shares of all links, added: " + shares(plan.network_share),
            max(plan.network_share.values(), default=0.0) <= 1.0,
        ),
        card(
            "Compute",
            number(100.0 * (sum(plan.compute_share.values()) + sum(plan.gpu_share.values()))),
            "%",
            f"Shares of cores: {shares(plan.compute_share)} Of GPUs: {shares(plan.gpu_share)}",
            max([*plan.compute_share.values(), *plan.gpu_share.values()], default=0.0) <= 1.0,
        ),
        card(
            "Profiling",
            str(plan.launches),
            "launches" if plan.launches != 1 else "launch",
            f"{number(plan.profiling_cost_s)} s of profiling. The plan costs {number(plan.price_per_hour)} per hour, in the currency of the tiers.",
            True,
        ),
    ]
    return '<section>\n<div class="cards">\n' + "\n".join(parts) + "\n</div>\n</section>"


def card(title: str, figure: str, unit: str, text: str, good: bool) -> str:
    """One number with its unit."""
    kind = "card" if good else "card no"
    return (
        f'<div class="{kind}"><h2>{escape(title)}</h2><p class="figure"><b>{escape(figure)}</b>{escape(unit)}</p>'
        f"<p>{escape(text)}</p></div>"
    )


def shares(values: Mapping[str, float]) -> str:
    """The parts that are not 0."""
    used = [f"{name} {percent(value)}" for name, value in values.items() if value > 0.0]
    return ", ".join(used) + "." if used else "none."


def remedies(unmet: Unmet) -> str:
    """What is possible, and what would let everything be met."""
    rows = "".join(f"<li>{escape(each)}</li>" for each in unmet.remedies)
    changes = f"<p>Each of these alone would be enough:</p>\n<ul>{rows}</ul>\n" if rows else ""
    return (
        f'<section id="unmet">\n<h2>What is missing</h2>\n<p>The plan {escape(" and ".join(unmet.missed))}; '
        f"{escape(unmet.possible)}.</p>\n{changes}</section>"
    )


def placement(plan: Plan, query: Query, infrastructure: Infrastructure) -> str:
    """The tiers from the source to the cloud, with the operators that run there and what the links carry."""
    parts = []
    for position, tier in enumerate(infrastructure.tiers):
        names = [name for name in plan.order if plan.placement[name] == tier.name]
        operators = "".join(operator_item(plan, query, name) for name in names)
        load = [
            f"{what} {percent(share)}"
            for what, share in (("cores", plan.compute_share.get(tier.name, 0.0)), ("GPUs", plan.gpu_share.get(tier.name, 0.0)))
            if share > 0.0
        ]
        speed = f"{number(tier.compute_factor)}x cores, {number(tier.gpu_factor)}x GPU"
        parts.append(
            f'<li class="tier{" used" if names else ""}"><h3>{escape(tier.name)}</h3>'
            f"<p>{escape(speed)}{escape(' · used: ' + ', '.join(load) if load else '')}</p>"
            f'<ul class="operators">{operators}</ul></li>'
        )
        if position < len(infrastructure.links):
            link = infrastructure.links[position]
            share = plan.network_share.get(link.name, 0.0)
            idle = "" if share > 0.0 else " idle"
            parts.append(
                f'<li class="link{idle}"><span>{number(link.mbit_per_s)} Mbit/s</span>'
                f"<span>{milliseconds(link.delay_ms)}</span><span>{percent(share)} used</span></li>"
            )
    return (
        '<section id="placement">\n<h2>Where operators run</h2>\n<p>Data flow from the source on the left to the cloud; '
        "orange operators use a GPU. A link shows its bandwidth, its delay and the part that this query uses.</p>\n"
        f'<ol class="tiers">{"".join(parts)}</ol>\n</section>'
    )


def operator_item(plan: Plan, query: Query, name: str) -> str:
    """One operator with its settings."""
    operator = query.operator(name)
    settings = ", ".join(f"{knob} = {setting(value)}" for knob, value in plan.configuration.get(name, {}).items())
    text = f"{operator.kind}{': ' + settings if settings else ''}"
    return f'<li class="{"gpu" if operator.gpu else "cores"}">{escape(name)}<small>{escape(text)}</small></li>'


def search(
    plan: Plan, query: Query, infrastructure: Infrastructure, steps: Sequence[Step], where: Sequence[int]
) -> str:
    """The two plots and what steps through them."""
    if not steps:
        return '<section id="search"><h2>The search</h2><p>This plan was made without one.</p></section>'
    titles = [step_title(step, index) for step, index in zip(steps, where, strict=True)]
    best = max(range(len(steps)), key=lambda index: steps[index].utility)
    launched = sum(step.launched for step in plan.path)
    note = f" {len(steps)} of {len(plan.path)} steps are shown." if len(plan.path) > POINTS_MAX else ""
    path = figure("search-path", "<b>Search path.</b> Orange is the best so far.", search_path(steps, titles, where, plan.path))
    chosen = (plan.accuracy, plan.latency_ms)
    objectives = (query.accuracy_min, query.latency_max_ms)
    edge = figure(
        "pareto",
        "<b>What else there was.</b> The ring is the plan, the green line the Pareto front; both objectives hold in the "
        "shaded part.",
        pareto(steps, titles, chosen, objectives),
    )
    controls = "".join(
        f'<button type="button" data-go="{go}" aria-label="{label} step">{sign}</button>'
        for go, label, sign in (
            ("first", "first", "⇤"),
            ("back", "previous", "←"),
            ("next", "next", "→"),
            ("last", "last", "⇥"),
        )
    )
    return (
        f'<section id="search">\n<h2>The search</h2>\n<p>{len(plan.path)} steps, {launched} of them launched a pipeline '
        f"(filled); the others reused a launch for another placement (hollow).{note} Choose a step with the pointer, the "
        "buttons or the arrow keys.</p>\n"
        f'<div class="tools needs-script" hidden>{controls}</div>\n'
        f'<p class="readout" id="readout" aria-live="polite" data-best="{best}"></p>\n'
        f'<div class="multiples wide">{path}{edge}</div>\n{steps_table(query, infrastructure, steps, where)}</section>'
    )


def figure(name: str, caption: str, plot: str) -> str:
    """A plot with a caption (markup) and buttons that save it."""
    return (
        f'<figure data-name="{name}"><figcaption>{caption}</figcaption>{plot}<div class="save">'
        '<button type="button" class="quiet" data-save="svg">SVG</button>'
        '<button type="button" class="quiet" data-save="png">PNG</button></div></figure>\n'
    )


def step_title(step: Step, index: int) -> str:
    """A step in a few words."""
    return f"Step {index + 1}: utility {number(step.utility)}"


def places(query: Query, infrastructure: Infrastructure, step: Step, order: Sequence[str]) -> str:
    """operator@tier, from the source on."""
    tiers = [infrastructure.tiers[index].name for index in step.placement]
    return " → ".join(f"{name}@{tier}" for name, tier in zip(order, tiers, strict=False))


def words(settings: Settings) -> str:
    """All settings in a line."""
    return ", ".join(f"{name}.{knob}={setting(value)}" for name, knobs in settings.items() for knob, value in knobs.items())


def described(query: Query, infrastructure: Infrastructure, step: Step, index: int) -> dict[str, str]:
    """What the readout says of a step."""
    kind = "launched" if step.launched else "reused"
    tiers = " → ".join(infrastructure.tiers[each].name for each in step.placement)
    return {
        "title": f"{step_title(step, index)}, {kind}.",
        "text": f"Accuracy {number(step.accuracy)}, {milliseconds(step.latency_ms)}; on {tiers}.",
        "settings": words(query.settings(step.configuration)),
    }


#: Rows of the table of steps; the plots have them all.
ROWS_MAX = 200


def steps_table(query: Query, infrastructure: Infrastructure, steps: Sequence[Step], where: Sequence[int]) -> str:
    """The same as a table, folded."""
    best = sorted(range(len(steps)), key=lambda index: -steps[index].utility)[:ROWS_MAX]
    rows = []
    for index in sorted(best):
        step = steps[index]
        tiers = " → ".join(infrastructure.tiers[each].name for each in step.placement)
        rows.append(
            f'<tr><td class="n">{where[index] + 1}</td><td class="n">{number(step.utility)}</td>'
            f'<td class="n">{number(step.accuracy)}</td><td class="n">{milliseconds(step.latency_ms)}</td>'
            f"<td>{'launched' if step.launched else 'reused'}</td><td>{escape(tiers)}</td>"
            f"<td>{escape(words(query.settings(step.configuration)))}</td></tr>"
        )
    title = "All steps" if len(rows) == len(steps) else f"The {len(rows)} best steps"
    return (
        f'<details><summary>{title} as a table</summary><div class="scroller"><table class="plain"><thead><tr>'
        '<th scope="col" class="n">step</th><th scope="col" class="n">utility (no unit)</th><th scope="col" class="n">accuracy</th>'
        '<th scope="col" class="n">latency</th><th scope="col">pipeline</th><th scope="col">tiers</th>'
        f'<th scope="col">configuration</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div></details>\n'
    )


def settings_table(plan: Plan, query: Query) -> str:
    """Every knob with its value among all values."""
    rows = "".join(
        f'<tr><th scope="row">{escape(knob.operator)}</th><td>{escape(knob.name)}</td>'
        f"<td><b>{escape(setting(plan.configuration[knob.operator][knob.name]))}</b></td>"
        f"<td>{escape(', '.join(setting(value) for value in knob.values))}</td></tr>"
        for knob in query.knobs
    )
    order = " → ".join(plan.order)
    return (
        f'<section id="configuration">\n<h2>Order and configuration</h2>\n<p>Operators in this order: {escape(order)}.</p>\n'
        '<div class="scroller"><table class="plain"><thead><tr><th scope="col">operator</th><th scope="col">knob</th>'
        '<th scope="col">value</th><th scope="col">of</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>\n</section>"
    )


def runner_up(plan: Plan, heading: str, column: str) -> str:
    """The second best beside the best, and why it lost."""
    other = plan.runner_up
    if other is None:
        return ""
    rows = [
        ("tiers", tier_words(plan), tier_words(other)),
        ("configuration", words(plan.configuration), words(other.configuration)),
        ("accuracy", number(plan.accuracy), number(other.accuracy)),
        ("latency", milliseconds(plan.latency_ms), milliseconds(other.latency_ms)),
        ("network, all links", percent(sum(plan.network_share.values())), percent(sum(other.network_share.values()))),
        ("GPUs, all tiers", percent(sum(plan.gpu_share.values())), percent(sum(other.gpu_share.values()))),
        ("price per hour, currency of the tiers", number(plan.price_per_hour), number(other.price_per_hour)),
        ("utility, no unit", number(plan.utility), number(other.utility)),
    ]
    cells = "".join(
        f'<tr><th scope="row">{name}</th><td>{escape(first)}</td><td>{escape(second)}</td></tr>' for name, first, second in rows
    )
    return (
        f'<section id="runner-up">\n<h2>{escape(heading)}</h2>\n<p>{escape(sentence(plan.why))}</p>\n'
        '<div class="scroller"><table class="plain"><thead><tr><th scope="col"></th><th scope="col">the plan</th>'
        f'<th scope="col">{escape(column)}</th></tr></thead><tbody>{cells}</tbody></table></div>\n</section>'
    )


def sentence(text: str) -> str:
    """With a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def tier_words(plan: Plan) -> str:
    """Operators with their tiers."""
    return ", ".join(f"{name}@{plan.placement[name]}" for name in plan.order)


def method(plan: Plan, command: str) -> str:
    """How the numbers came about, and how to get them again."""
    again = f'<code class="command">{escape(command)}</code>' if command else ""
    return (
        '<section id="method">\n<h2>How these numbers came about</h2>\n<p>Accuracy, times and sizes of a configuration were '
        "measured once on the profiling machine; latency on other tiers is those times over the tiers' speeds, and the "
        "bytes between tiers over the links' bandwidth, with their delays. Utility is the reward for accuracy above and "
        f"latency below the objectives, over the shares of GPUs and links.</p>\n{again}\n</section>"
    )
