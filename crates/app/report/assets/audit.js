// The matrix: tabs, filters, movement by keys, the readout, and files. src/audit_page/data.rs describes the data's layout.
"use strict";
(() => {
  const { bitRate, rate, time, percent, drawing, download, save } = window.isolane;
  const data = JSON.parse(document.getElementById("data").textContent);
  const [victims, attackers] = [data.victims, data.attackers];
  const text = (index) => data.texts[index];

  const index = new Map();
  const key = (policy, victim, attacker) => (policy * victims.length + victim) * attackers.length + attacker;
  const metrics = (list) => list && { goodput: list[0], messages: list[1], controls: list[2], p50: list[3], p99: list[4],
    operations: list[5], operationP50: list[6], operationP99: list[7] };
  const pair = (raw) => ({
    policy: raw[0], victim: raw[1], attacker: raw[2], verdict: raw[3], achieved: raw[4], why: text(raw[5]),
    expected: raw[6] && { metric: raw[6][0], bound: raw[6][1], solo: raw[6][2], guarantee: raw[6][3], rule: text(raw[6][4]) },
    measured: raw[7], retained: raw[8], spread: raw[9], victimMetrics: metrics(raw[10]), attackerMetrics: metrics(raw[11]),
    runs: raw[12].map(([seed, victim, attacker]) => ({ seed, victim: metrics(victim), attacker: metrics(attacker) })),
    exhausted: raw[13] && { resource: text(raw[13][0]), host: "ABCDEFGH"[raw[13][1]], counter: text(raw[13][2]),
      solo: raw[13][3], contended: raw[13][4], evidence: text(raw[13][5]) },
    series: raw[14] && { seed: raw[14][0], sampleUs: raw[14][1], soloGoodput: data.numbers[raw[14][2]],
      victimGoodput: data.numbers[raw[14][3]], attackerGoodput: data.numbers[raw[14][4]],
      soloP99: data.numbers[raw[14][5]], victimP99: data.numbers[raw[14][6]] },
  });
  data.cells.forEach((raw) => index.set(key(raw[0], raw[1], raw[2]), raw));
  const cell = (policy, victim, attacker) => {
    const raw = index.get(key(policy, victim, attacker));
    return raw && pair(raw);
  };
  const judged = (value, metric) => value === null ? "nothing completed"
    : metric === 0 ? bitRate(value) : metric === 1 ? rate(value, "msg") : metric === 3 ? rate(value, "op") : time(value);
  const verdictWords = ["keeps isolation", "breaks isolation", "does not apply", "did not settle"];

  const tables = [...document.querySelectorAll(".grid-table")];
  const tabs = [...document.querySelectorAll("#matrix [role=tab]")];
  const panels = [...document.querySelectorAll(".panel")];
  const rowsOf = tables.map((table) => [...table.querySelectorAll("tr[data-v]")]);
  const at = (policy, victim, attacker) => rowsOf[policy][victim].cells[attacker + 1];
  const whereIs = (td) => ({
    policy: Number(td.closest("table").dataset.policy),
    victim: Number(td.parentNode.dataset.v),
    attacker: td.cellIndex - 1,
  });
  const isCell = (node) => node instanceof HTMLElement && node.localName === "td" && node.closest("tr[data-v]");

  // A sentence for the readout and for screen readers.
  const describe = ({ policy, victim, attacker }) => {
    const found = cell(policy, victim, attacker);
    const names = `${victims[victim][0]} under ${attackers[attacker][0]}`;
    if (!found) return [names, "not run yet"];
    if (!found.expected) return [names, `${verdictWords[found.verdict]}. ${found.why}`];
    const { metric, bound } = found.expected;
    const owed = metric === 2 ? `at most ${judged(bound, metric)}` : `at least ${judged(bound, metric)}`;
    return [names, `${verdictWords[found.verdict]}: ${judged(found.measured, metric)}, owed ${owed}` +
      (found.achieved === null ? "" : ` (${percent(found.achieved)} of what is owed)`)];
  };

  // The grid's roles, once: markup this regular is smaller made here.
  let focusable = [];
  tables.forEach((table, policy) => {
    rowsOf[policy].forEach((row, victim) => {
      for (let attacker = 0; attacker < attackers.length; attacker++) {
        const td = row.cells[attacker + 1];
        td.setAttribute("role", "gridcell");
        td.tabIndex = -1;
        td.setAttribute("aria-label", describe({ policy, victim, attacker }).join(": "));
      }
    });
    focusable[policy] = rowsOf[policy].length && attackers.length ? at(policy, 0, 0) : null;
    if (focusable[policy]) focusable[policy].tabIndex = 0;
  });

  let current = 0;
  const show = (policy, focus) => {
    current = policy;
    tabs.forEach((tab, other) => {
      tab.setAttribute("aria-selected", other === policy);
      tab.tabIndex = other === policy ? 0 : -1;
      panels[other].classList.toggle("open", other === policy);
    });
    if (focus) tabs[policy].focus();
    filter();
  };
  tabs.forEach((tab, policy) => {
    tab.addEventListener("click", () => show(policy));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) show((policy + step + tabs.length) % tabs.length, true);
    });
  });

  const victimField = document.getElementById("filter-victim");
  const groupField = document.getElementById("filter-group");
  const brokenField = document.getElementById("filter-broken");
  let [visibleVictims, visibleAttackers] = [[], []];
  const filter = () => {
    const words = victimField.value.toLowerCase().trim();
    const broken = (victim, attacker) => (index.get(key(current, victim, attacker)) || [])[3] === 1;
    visibleVictims = victims.map((_, victim) => victim).filter((victim) =>
      victims[victim][0].toLowerCase().includes(words) || victims[victim][2].toLowerCase().includes(words));
    visibleAttackers = attackers.map((_, attacker) => attacker).filter((attacker) =>
      !groupField.value || attackers[attacker][3] === groupField.value);
    if (brokenField.checked) {
      const rows = visibleVictims.filter((victim) => visibleAttackers.some((attacker) => broken(victim, attacker)));
      const columns = visibleAttackers.filter((attacker) => visibleVictims.some((victim) => broken(victim, attacker)));
      [visibleVictims, visibleAttackers] = [rows, columns];
    }
    const table = tables[current];
    if (!table) return;
    const columnShown = new Set(visibleAttackers);
    const rowShown = new Set(visibleVictims);
    rowsOf[current].forEach((row, victim) => {
      row.hidden = !rowShown.has(victim);
      for (let attacker = 0; attacker < attackers.length; attacker++) {
        row.cells[attacker + 1].hidden = !columnShown.has(attacker);
      }
    });
    [...table.querySelectorAll(".names th")].forEach((th, attacker) => { th.hidden = !columnShown.has(attacker); });
    let from = 0;
    for (const th of table.querySelectorAll(".spans th")) {
      if (!th.dataset.count) th.dataset.count = th.colSpan;
      const count = Number(th.dataset.count);
      const shown = visibleAttackers.filter((attacker) => attacker >= from && attacker < from + count).length;
      th.hidden = shown === 0;
      th.colSpan = Math.max(1, shown);
      from += count;
    }
    for (const body of table.tBodies) {
      body.rows[0].hidden = [...body.rows].slice(1).every((row) => row.hidden);
      body.rows[0].cells[0].colSpan = visibleAttackers.length + 1;
    }
    if (focusable[current] && (focusable[current].hidden || focusable[current].parentNode.hidden) &&
        visibleVictims.length && visibleAttackers.length) {
      roam(at(current, visibleVictims[0], visibleAttackers[0]));
    }
    if (!visibleVictims.length || !visibleAttackers.length) readout.textContent = "No pair matches these filters.";
  };
  victimField.addEventListener("input", () => filter());
  groupField.addEventListener("change", () => filter());
  brokenField.addEventListener("change", () => filter());

  const readout = document.getElementById("readout");
  let lit = [];
  const read = (td) => {
    const place = whereIs(td);
    const [names, rest] = describe(place);
    const strong = document.createElement("b");
    strong.textContent = names;
    readout.replaceChildren(strong, ` · ${rest}`);
    lit.forEach((th) => th.classList.remove("lit"));
    const table = td.closest("table");
    lit = [td.parentNode.cells[0], table.querySelectorAll(".names th")[place.attacker]];
    lit.forEach((th) => th.classList.add("lit"));
  };
  const roam = (td) => {
    const policy = Number(td.closest("table").dataset.policy);
    if (focusable[policy]) focusable[policy].tabIndex = -1;
    focusable[policy] = td;
    td.tabIndex = 0;
  };

  const moved = (place, event) => {
    const row = visibleVictims.indexOf(place.victim);
    const column = visibleAttackers.indexOf(place.attacker);
    const [lastRow, lastColumn] = [visibleVictims.length - 1, visibleAttackers.length - 1];
    switch (event.key) {
      case "ArrowRight": return [row, column + 1];
      case "ArrowLeft": return [row, column - 1];
      case "ArrowDown": return [row + 1, column];
      case "ArrowUp": return [row - 1, column];
      case "PageDown": return [Math.min(lastRow, row + 5), column];
      case "PageUp": return [Math.max(0, row - 5), column];
      case "Home": return [event.ctrlKey ? 0 : row, 0];
      case "End": return [event.ctrlKey ? lastRow : row, lastColumn];
      default: return null;
    }
  };
  for (const table of tables) {
    table.addEventListener("pointerover", (event) => { if (isCell(event.target)) read(event.target); });
    table.addEventListener("focusin", (event) => { if (isCell(event.target)) { read(event.target); roam(event.target); } });
    table.addEventListener("click", (event) => { if (isCell(event.target)) open(whereIs(event.target)); });
    table.addEventListener("keydown", (event) => {
      if (!isCell(event.target)) return;
      const place = whereIs(event.target);
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        open(place);
        return;
      }
      const to = moved(place, event);
      if (!to) return;
      event.preventDefault();
      const [victim, attacker] = [visibleVictims[to[0]], visibleAttackers[to[1]]];
      if (victim !== undefined && attacker !== undefined) at(place.policy, victim, attacker).focus();
    });
  }

  // The open pair is the address' fragment, so that it can be linked, and Back closes or returns.
  const fragment = ({ policy, victim, attacker }) => "#" + new URLSearchParams({
    policy: data.policies[policy], victim: victims[victim][0], attacker: attackers[attacker][0] });
  const fromFragment = () => {
    const wanted = new URLSearchParams(location.hash.slice(1));
    const policy = data.policies.indexOf(wanted.get("policy"));
    const victim = victims.findIndex(([name]) => name === wanted.get("victim"));
    const attacker = attackers.findIndex(([name]) => name === wanted.get("attacker"));
    return policy < 0 || victim < 0 || attacker < 0 ? null : { policy, victim, attacker };
  };
  const open = (place) => {
    if (location.hash !== fragment(place)) history.pushState(null, "", fragment(place));
    follow();
  };
  let selected = null;
  const mark = (place) => {
    if (selected) selected.removeAttribute("aria-selected");
    selected = place && at(place.policy, place.victim, place.attacker);
    if (selected) selected.setAttribute("aria-selected", "true");
  };
  const follow = () => {
    const place = fromFragment();
    mark(place);
    if (!place) { window.isolane.drill.hide(); return; }
    if (place.policy !== current) show(place.policy);
    const td = at(place.policy, place.victim, place.attacker);
    if (!td.hidden && !td.parentNode.hidden) roam(td);
    window.isolane.drill.show(place);
    // Where the panel stands beside the page, the cell stays in sight.
    if (innerWidth >= 1000) td.scrollIntoView({ block: "center", inline: "center" });
  };
  const close = () => {
    const place = fromFragment();
    // Leaves the page's other state alone, and adds no step to the history.
    history.replaceState(null, "", location.pathname + location.search);
    mark(null);
    window.isolane.drill.hide();
    if (!place) return;
    const td = at(place.policy, place.victim, place.attacker);
    if (!td.hidden && !td.parentNode.hidden) td.focus({ preventScroll: false });
  };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && fromFragment()) close();
  });

  // Violations in reading order, for the drill-down's steps; those of the filters only.
  const violations = (policy) => visibleVictims.flatMap((victim) => visibleAttackers
    .filter((attacker) => (index.get(key(policy, victim, attacker)) || [])[3] === 1)
    .map((attacker) => ({ policy, victim, attacker })));

  // The whole table as text; fields are quoted, and one that a spreadsheet would run as a formula is made text.
  const quote = (value) => {
    const field = value === null || value === undefined ? "" : String(value);
    return typeof value === "number" ? field : `"${(/^[=+\-@\t\r]/.test(field) ? `'${field}` : field).replace(/"/g, '""')}"`;
  };
  const csv = () => {
    const units = ["gbps", "messages_per_s", "p99_us", "operations_per_s"];
    const lines = [["policy", "victim", "victim_category", "attacker", "attacker_category", "verdict", "metric", "bound",
      "alone", "measured", "measured_min", "measured_max", "achieved_over_owed", "retained", "victim_goodput_gbps",
      "victim_messages_per_s", "victim_p99_us", "attacker_goodput_gbps", "attacker_messages_per_s",
      "attacker_controls_per_s", "exhausted", "host", "counter", "counter_alone", "counter_contended", "why"]];
    for (const raw of data.cells) {
      const it = pair(raw);
      const [owed, v, a, x] = [it.expected || {}, it.victimMetrics || {}, it.attackerMetrics || {}, it.exhausted || {}];
      lines.push([data.policies[it.policy], victims[it.victim][0], victims[it.victim][2], attackers[it.attacker][0],
        attackers[it.attacker][1], ["pass", "violation", "not-applicable", "not-settled"][it.verdict], units[owed.metric], owed.bound,
        owed.solo, it.measured, it.spread[0], it.spread[1], it.achieved, it.retained, v.goodput, v.messages, v.p99,
        a.goodput, a.messages, a.controls, x.resource, x.host, x.counter, x.solo, x.contended, it.why]);
    }
    return lines.map((fields) => fields.map(quote).join(",")).join("\r\n") + "\r\n";
  };
  document.getElementById("csv").addEventListener("click", () =>
    download(`audit-${data.profile}.csv`, new Blob(["\ufeff", csv()], { type: "text/csv;charset=utf-8" })));

  // The visible matrix as a plot, with every name.
  const matrixPlot = () => {
    const [left, top, size] = [190, 190, 16];
    const width = left + visibleAttackers.length * size + 10;
    const height = top + visibleVictims.length * size + 24;
    const plot = drawing(width, height, `Victims and attackers under ${data.policies[current]}`);
    plot.text("heading", 0, 14, "start", `${data.profile}, ${data.policies[current]}`);
    plot.text("tick", 0, 30, "start", "cross: breaks isolation, stroke: not settled");
    visibleAttackers.forEach((attacker, column) => {
      const x = left + column * size + size / 2 + 4;
      plot.text("tick", x, top - 5, "start", attackers[attacker][0]).setAttribute("transform", `rotate(-90 ${x} ${top - 5})`);
    });
    visibleVictims.forEach((victim, row) => {
      const y = top + row * size;
      plot.text("tick", left - 6, y + 12, "end", victims[victim][0]);
      visibleAttackers.forEach((attacker, column) => {
        const x = left + column * size;
        const td = at(current, victim, attacker);
        plot.rectangle(td.classList[0], x, y, size - 1, size - 1);
        if (td.textContent === "×") plot.path("cross", `M${x + 4} ${y + 4}l7 7M${x + 11} ${y + 4}l-7 7`);
        if (td.textContent === "?") plot.path("cross", `M${x + 4} ${y + 11}l7 -7`);
      });
    });
    plot.text("axis-title", (left + width) / 2, height - 4, "middle", "rows: victims, columns: attackers");
    return plot.svg;
  };
  document.querySelectorAll("[data-matrix]").forEach((button) => button.addEventListener("click", async () => {
    const svg = matrixPlot();
    // Styles apply to what is in the document only.
    document.body.append(svg);
    await save(svg, `matrix-${data.policies[current]}-full`, button.dataset.matrix);
    svg.remove();
  }));

  Object.assign(window.isolane, { data, cell, judged, describe, open, close, follow, violations, csv, matrixPlot });
  show(0);
  window.addEventListener("hashchange", follow);
  // The drill-down's own script has to be there first.
  document.addEventListener("DOMContentLoaded", follow);
})();
