// The drill-down of one pair: what was owed and got, what ran out, what the attacker did, every seed, and the command.
"use strict";
(() => {
  const { data, cell, judged, bars, lines, bitRate, rate, time, percent, significant } = window.isolane;
  const panel = document.getElementById("drill");
  const make = (name, properties = {}, ...children) => {
    const node = Object.assign(document.createElement(name), properties);
    node.append(...children.filter((child) => child !== null));
    return node;
  };

  const figure = (name, caption, svg) => {
    const buttons = make("div", { className: "save" });
    for (const kind of ["svg", "png"]) {
      const button = make("button", { type: "button", className: "quiet", textContent: kind.toUpperCase() });
      button.dataset.save = kind;
      buttons.append(button);
    }
    const node = make("figure", {}, make("figcaption", {}, caption), svg, buttons);
    node.dataset.name = name;
    return node;
  };

  // Plots are as wide as the panel's text, so that their letters keep their size on a phone.
  const width = () => Math.max(280, panel.clientWidth - 36);

  // Axis of a judged metric: divisor and title.
  const axis = (metric, high) => {
    if (metric === 0) return [1, "goodput, Gb/s"];
    if (metric === 1) return high >= 1e6 ? [1e6, "messages, M msg/s"] : high >= 1e3 ? [1e3, "messages, k msg/s"] : [1, "messages, msg/s"];
    if (metric === 3) return high >= 1e6 ? [1e6, "operations, M op/s"] : high >= 1e3 ? [1e3, "operations, k op/s"] : [1, "operations, op/s"];
    return high >= 1e3 ? [1e3, "99th percentile latency, ms"] : [1, "99th percentile latency, µs"];
  };

  const comparison = (place) => {
    const cells = data.policies.map((_, policy) => cell(policy, place.victim, place.attacker));
    const chosen = cells[place.policy];
    const metric = chosen.expected.metric;
    const shown = cells.map((it, policy) => ({ it, policy })).filter(({ it }) => it && it.expected && it.expected.metric === metric);
    const high = Math.max(...shown.flatMap(({ it }) => [it.expected.solo, it.expected.bound, it.measured || 0]));
    const [divisor, title] = axis(metric, high);
    const side = metric === 2 ? "at most" : "at least";
    const rows = shown.map(({ it, policy }) => ({
      name: `${data.policies[policy]}: owed ${side} ${judged(it.expected.bound, metric)} (line)`,
      bound: it.expected.bound / divisor,
      bars: [
        { name: "alone", ink: 0, value: it.expected.solo / divisor, text: judged(it.expected.solo, metric), faded: policy !== place.policy },
        { name: "under attack", ink: it.verdict === 1 ? 2 : 1, value: (it.measured || 0) / divisor,
          text: `${judged(it.measured, metric)}${it.verdict === 1 ? " ×" : ""}`, faded: policy !== place.policy },
      ],
    }));
    return figure(`pair-${data.victims[place.victim][0]}-${data.attackers[place.attacker][0]}`,
      "Alone and under attack, by policy", bars({ width: width(), label: "The victim alone, under attack, and what it is owed", title, rows }));
  };

  const table = (head, rows) => make("div", { className: "scroller" }, make("table", { className: "plain" },
    make("thead", {}, make("tr", {}, ...head.map((text, column) => make("th", { scope: "col", className: column ? "n" : "" }, text)))),
    make("tbody", {}, ...rows.map(([name, ...values]) => make("tr", {}, make("th", { scope: "row" }, name),
      ...values.map((value) => make("td", { className: "n" }, value)))))));

  const rates = (it, place) => {
    const alone = data.solo[place.policy * data.victims.length + place.victim][0];
    const columns = [alone && { goodput: alone[0], messages: alone[1], controls: alone[2], p50: alone[3], p99: alone[4],
      operations: alone[5], operationP50: alone[6], operationP99: alone[7] },
      it.victimMetrics, it.attackerMetrics];
    const row = (name, show) => [name, ...columns.map((column) => column ? show(column) : "–")];
    const rows = [row("goodput", (m) => bitRate(m.goodput)), row("messages", (m) => rate(m.messages, "msg")),
      row("latency p50", (m) => time(m.p50)), row("latency p99", (m) => time(m.p99))];
    if (columns.some((column) => column && column.controls > 0)) rows.push(row("control verbs", (m) => rate(m.controls, "verbs")));
    if (columns.some((column) => column && column.operations !== undefined)) {
      const known = (value, show) => value === undefined ? "–" : show(value);
      rows.push(row("operations", (m) => known(m.operations, (value) => rate(value, "op"))),
        row("operation p50", (m) => known(m.operationP50, time)), row("operation p99", (m) => known(m.operationP99, time)));
    }
    return table(["medians", "victim alone", "attacked", "attacker"], rows);
  };

  const seeds = (it) => {
    const metric = it.expected.metric;
    const value = (m) => metric === 0 ? m.goodput : metric === 1 ? m.messages : metric === 3 ? m.operations : m.p99;
    return table(["seed", "victim", "attacker"], it.runs.map((run) => [String(run.seed), judged(value(run.victim), metric),
      run.attacker.controls > 0 && run.attacker.goodput === 0 ? rate(run.attacker.controls, "verbs") : bitRate(run.attacker.goodput)]));
  };

  const ended = (text) => text + (/[.!?]$/.test(text) ? "" : ".");
  const sentence = (text) => text && ended(text[0].toUpperCase() + text.slice(1));
  const exhausted = ({ resource, host, counter, solo, contended, evidence }) => make("div", {},
    make("h3", {}, "What ran out"),
    make("p", {}, make("b", {}, sentence(resource)), ` ${sentence(evidence)}`),
    figure(`counter-${counter}`, `${counter}, host ${host}`, bars({ width: width(), label: `${counter} alone and under attack`, title: `${counter}, %`, rows: [{
      name: "", bars: [{ name: "alone", ink: 0, value: solo * 100, text: percent(solo) },
        { name: "under attack", ink: 2, value: contended * 100, text: percent(contended) }] }] })));

  const overTime = (it) => {
    const { series } = it;
    const points = Math.max(series.victimGoodput.length, series.victimP99.length, 1);
    const long = series.sampleUs * points >= 2000;
    const step = long ? series.sampleUs / 1000 : series.sampleUs;
    const xTitle = long ? "measured time, ms" : "measured time, µs";
    const plots = [];
    if (series.victimP99.length) {
      plots.push(figure("p99-over-time", `99th percentile latency over time, seed ${series.seed}`, lines({
        width: width(), label: "The victim's 99th percentile latency over time", title: "p99, µs", xTitle, step,
        rule: it.expected && it.expected.metric === 2 ? { name: "owed", value: it.expected.bound } : null,
        series: [{ name: "alone", ink: 0, values: series.soloP99 }, { name: "under attack", ink: 2, values: series.victimP99 }] })));
    }
    plots.push(figure("goodput-over-time", `Goodput over time, seed ${series.seed}`, lines({
      width: width(), label: "Goodput of the victim and of the attacker over time", title: "goodput, Gb/s", xTitle, step,
      rule: it.expected && it.expected.metric === 0 ? { name: "owed", value: it.expected.bound } : null,
      series: [{ name: "victim alone", ink: 0, values: series.soloGoodput }, { name: "victim attacked", ink: 2, values: series.victimGoodput },
        { name: "attacker", ink: 4, values: series.attackerGoodput }] })));
    return plots;
  };

  const word = (text) => /^[A-Za-z0-9_.,:=\/-]+$/.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`;
  // A folder of its own: the default one may hold the audit that is being read.
  const folder = (...names) => `out/pair-${names.map((name) => name.replace(/[^A-Za-z0-9_.-]/g, "-")).join("-")}`;
  const command = (place) => {
    const names = [data.policies[place.policy], data.victims[place.victim][0], data.attackers[place.attacker][0]];
    const [policy, victim, attacker] = names.map(word);
    return `${data.rerun} --policies ${policy} --victims ${victim} --attackers ${attacker} --report ${folder(...names)}`;
  };
  const explain = (place) => {
    const names = [data.policies[place.policy], data.victims[place.victim][0], data.attackers[place.attacker][0]];
    const [policy, victim, attacker] = names.map(word);
    const [own, options] = data.explain;
    const pair = own ? `${options} --victim ${victim} --attacker ${attacker}` : `${victim} ${attacker} ${options}`;
    return `isolane explain ${pair} --policy ${policy} --report ${folder("why", ...names)}`.replace(/ +/g, " ");
  };
  const rerun = (title, code) => {
    const pre = make("pre", { className: "command" }, make("code", {}, code));
    const copy = make("button", { type: "button", className: "quiet", textContent: "Copy" });
    copy.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(code);
        copy.textContent = "Copied";
      } catch {
        // No clipboard for pages opened from a file in some browsers: select it, so that one key copies it.
        getSelection().selectAllChildren(pre);
        copy.textContent = "Selected";
      }
    });
    return make("div", {}, make("h3", {}, title), pre, make("p", {}, copy));
  };

  const policies = (place) => {
    const group = make("div", { className: "tabs" });
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", "The same pair under");
    data.policies.forEach((name, policy) => {
      const it = cell(policy, place.victim, place.attacker);
      const button = make("button", { type: "button" }, `${name} ${it ? ["·", "×", "–", "?"][it.verdict] : ""}`);
      button.setAttribute("aria-pressed", policy === place.policy);
      button.addEventListener("click", () => window.isolane.open({ ...place, policy }));
      group.append(button);
    });
    return group;
  };

  const steps = (place) => {
    const all = window.isolane.violations(place.policy);
    const order = (it) => it.victim * data.attackers.length + it.attacker;
    const next = all.find((it) => order(it) > order(place));
    const previous = [...all].reverse().find((it) => order(it) < order(place));
    const button = (text, target) => {
      const node = make("button", { type: "button", disabled: !target }, text);
      node.addEventListener("click", () => window.isolane.open(target));
      return node;
    };
    return make("div", { className: "steps" }, button("← Previous violation", previous), button("Next violation →", next));
  };

  // The loss of a victim: its latency grew, or its rate fell.
  const lost = (it) => {
    if (it.retained === null) return "";
    if (it.expected.metric !== 2) return ` It kept ${significant(it.retained * 100, 2)} % of its rate alone.`;
    return it.retained > 0 ? ` Its p99 latency was ${significant(1 / it.retained, 2)} times its p99 latency alone.` : " It completed nothing.";
  };

  const show = (place) => {
    panel.hidden = false;
    document.documentElement.classList.add("drilled");
    const it = cell(place.policy, place.victim, place.attacker);
    const [victim, attacker] = [data.victims[place.victim], data.attackers[place.attacker]];
    const close = make("button", { type: "button", className: "close", textContent: "Close" });
    close.addEventListener("click", () => window.isolane.close());
    const title = make("h2", { id: "drill-title", tabIndex: -1 }, victim[0], make("small", {}, " under "), attacker[0]);
    const verdict = it ? [["pass", "· keeps isolation"], ["fail", "× breaks isolation"], ["none", "– does not apply"], ["unsettled", "? did not settle"]][it.verdict]
      : ["none", "not run yet"];
    const badge = make("span", { className: `badge ${verdict[0]}` }, `${verdict[1]} under ${data.policies[place.policy]}`);
    const nodes = [close, title, badge];
    if (it) {
      nodes.push(make("p", {}, sentence(it.why)));
      if (data.policies.length > 1) nodes.push(policies(place));
      if (it.expected) {
        nodes.push(comparison(place));
        const kept = lost(it);
        nodes.push(make("p", {}, `Owed: ${ended(it.expected.rule)}${kept}`));
      }
      if (it.exhausted) nodes.push(exhausted(it.exhausted));
      nodes.push(make("h3", {}, "Rates"), make("p", {}, `The attacker goes for: ${attacker[2]} (${attacker[3]}).`));
      nodes.push(rates(it, place));
      if (it.series) nodes.push(...overTime(it));
      if (it.expected && it.runs.length) nodes.push(make("h3", {}, "Every seed"), seeds(it));
    }
    nodes.push(rerun("Ask why ", explain(place)), rerun("Run this pair again ", command(place)), steps(place));
    panel.replaceChildren(...nodes);
    panel.scrollTop = 0;
    title.focus({ preventScroll: true });
  };
  const hide = () => {
    panel.hidden = true;
    document.documentElement.classList.remove("drilled");
  };

  window.isolane.drill = { show, hide, command };
})();
