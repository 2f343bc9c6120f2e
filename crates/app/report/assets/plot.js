// Numbers and plots for the drill-down, by the same rules as the page's static plots: round ticks, units, direct labels.
"use strict";
(() => {
  const separated = (digits) => digits.replace(/\B(?=(\d{3})+$)/g, ",");
  const fixed = (value, decimals) => {
    const [whole, fraction] = Math.abs(value).toFixed(decimals).split(".");
    const zero = /^0*$/.test(whole + (fraction || ""));
    return (value < 0 && !zero ? "−" : "") + separated(whole) + (fraction ? `.${fraction}` : "");
  };
  const significant = (value, digits) => {
    if (value === null || !Number.isFinite(value)) return "–";
    if (value === 0) return "0";
    const magnitude = Math.floor(Math.log10(Number(Math.abs(value).toPrecision(digits))));
    const decimals = Math.max(0, digits - 1 - magnitude);
    return decimals > 6 ? value.toExponential(1) : fixed(value, decimals);
  };
  const bitRate = (gbps) => {
    const size = Math.abs(gbps);
    if (size === 0 || size >= 0.1) return `${significant(gbps, 3)} Gb/s`;
    return size >= 1e-4 ? `${significant(gbps * 1e3, 3)} Mb/s` : `${significant(gbps * 1e6, 3)} kb/s`;
  };
  const rate = (perSecond, what) => {
    const size = Math.abs(perSecond);
    if (size >= 1e6) return `${significant(perSecond / 1e6, 3)} M ${what}/s`;
    return size >= 1e3 ? `${significant(perSecond / 1e3, 3)} k ${what}/s` : `${significant(perSecond, 3)} ${what}/s`;
  };
  const time = (us) => {
    if (us === null) return "–";
    const size = Math.abs(us);
    if (size >= 1e6) return `${significant(us / 1e6, 3)} s`;
    if (size >= 1e3) return `${significant(us / 1e3, 3)} ms`;
    return size >= 0.1 || size === 0 ? `${significant(us, 3)} µs` : `${significant(us * 1e3, 3)} ns`;
  };
  const percent = (fraction) => {
    const value = fraction * 100;
    return value !== 0 && Math.abs(value) < 1 ? `${significant(value, 1)}%` : `${fixed(value, 0)}%`;
  };

  const ticks = (low, high, target) => {
    const rough = (high - low) / target;
    const power = 10 ** Math.floor(Math.log10(rough));
    const factor = [1, 2, 5].find((nice) => rough / power <= nice * (1 + 1e-9)) || 10;
    const step = power < 1 ? factor / Math.round(1 / power) : factor * power;
    const first = Math.floor(low / step + 1e-9);
    const last = Math.ceil(high / step - 1e-9);
    const decimals = Math.max(0, Math.ceil(-Math.log10(step)));
    return Array.from({ length: last - first + 1 }, (_, index) => {
      const value = (first + index) * step;
      return [value, fixed(value, decimals)];
    });
  };

  const element = (name, attributes, text) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) {
      node.setAttribute(key, typeof value === "number" ? Math.round(value * 10) / 10 : value);
    }
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const drawing = (width, height, label) => {
    const svg = element("svg", { class: "plot", role: "img", "aria-label": label, viewBox: `0 0 ${width} ${height}`, width, height });
    const add = (name, attributes, text) => svg.appendChild(element(name, attributes, text));
    return {
      svg,
      text: (kind, x, y, anchor, text) => add("text", { class: kind, x, y, "text-anchor": anchor }, text),
      segment: (kind, x1, y1, x2, y2) => add("path", { class: kind, d: `M${x1.toFixed(1)} ${y1.toFixed(1)}L${x2.toFixed(1)} ${y2.toFixed(1)}` }),
      path: (kind, d) => add("path", { class: kind, d }),
      rectangle: (kind, x, y, width, height) => add("rect", { class: kind, x, y, width: Math.max(0, width), height }),
    };
  };
  const textWidth = (text) => text.length * 6.1;
  const widest = (texts) => Math.max(0, ...texts.map(textWidth));
  const finite = (values) => values.filter((value) => value !== null && Number.isFinite(value));

  // Groups of bars: rows [{name, bars: [{name, ink, value, text, faded}], bound}].
  const bars = ({ label, title, rows, width = 440 }) => {
    const all = rows.flatMap((row) => row.bars);
    const left = widest(all.map((bar) => bar.name)) + 8;
    const right = width - widest(all.map((bar) => bar.text)) - 12;
    const heights = rows.map((row) => (row.name ? 20 : 4) + row.bars.length * 17 + 10);
    const bottom = heights.reduce((sum, height) => sum + height, 0);
    const high = Math.max(0, ...finite(all.map((bar) => bar.value)), ...finite(rows.map((row) => row.bound))) || 1;
    const marks = ticks(0, high, 5);
    const end = marks[marks.length - 1][0];
    const x = (value) => left + (value / end) * (right - left);
    const plot = drawing(width, bottom + 36, label);
    for (const [value, text] of marks) {
      plot.segment(value === 0 ? "axis" : "grid", x(value), 2, x(value), bottom);
      plot.text("tick", x(value), bottom + 14, "middle", text);
    }
    plot.text("axis-title", (left + right) / 2, bottom + 31, "middle", title);
    let top = 0;
    // Numbers come last: nothing covers them.
    const values = [];
    for (const row of rows) {
      if (row.name) plot.text("heading", 0, top + 13, "start", row.name);
      top += row.name ? 20 : 4;
      const first = top;
      for (const bar of row.bars) {
        const length = x(bar.value || 0) - left;
        plot.rectangle(`bar f${bar.ink}${bar.faded ? " faded" : ""}`, left, top, length, 12);
        values.push([left + length + 6, top + 10, bar.text]);
        plot.text("tick", left - 6, top + 10, "end", bar.name);
        top += 17;
      }
      if (row.bound !== null && row.bound !== undefined) {
        plot.segment("bound", x(row.bound), first - 2, x(row.bound), top - 1);
      }
      top += 10;
    }
    for (const [x, y, text] of values) plot.text("value", x, y, "start", text);
    return plot.svg;
  };

  // Lines over time: series [{name, ink, values}], rule {name, value}.
  const lines = ({ label, title, xTitle, step, series, rule, width = 440, height = 210 }) => {
    const values = finite(series.flatMap((one) => one.values).concat(rule ? [rule.value] : []));
    const yMarks = ticks(0, Math.max(0, ...values) || 1, 5);
    const points = Math.max(1, ...series.map((one) => one.values.length));
    const xEnd = step * points;
    const left = 10 + widest(yMarks.map(([, text]) => text));
    const names = series.map((one) => one.name).concat(rule ? [rule.name] : []);
    const right = width - Math.min(widest(names), width * 0.36) - 10;
    const [topEdge, bottom] = [26, height - 34];
    const yTop = yMarks[yMarks.length - 1][0];
    const y = (value) => bottom - (Math.min(value, yTop) / yTop) * (bottom - topEdge);
    const x = (value) => left + (value / xEnd) * (right - left);
    const plot = drawing(width, height, label);
    plot.text("axis-title", 0, 11, "start", title);
    for (const [value, text] of yMarks) {
      plot.segment(value === 0 ? "axis" : "grid", left, y(value), right, y(value));
      plot.text("tick", left - 5, y(value) + 3.5, "end", text);
    }
    for (const [value, text] of ticks(0, xEnd, 5)) {
      if (value <= xEnd * (1 + 1e-9)) plot.text("tick", x(value), bottom + 14, "middle", text);
    }
    plot.text("axis-title", (left + right) / 2, height - 4, "middle", xTitle);
    const labels = [];
    if (rule) {
      plot.segment("rule", left, y(rule.value), right, y(rule.value));
      labels.push([y(rule.value), "rule-label", rule.name]);
    }
    for (const one of series) {
      let d = "";
      let points = "";
      let up = true;
      one.values.forEach((value, index) => {
        if (value === null) { up = true; return; }
        const place = `${x((index + 1) * step).toFixed(1)} ${y(value).toFixed(1)}`;
        // A point between two gaps is a line without length: its round ends show it as a dot.
        const alone = up && (one.values[index + 1] ?? null) === null;
        d += (up ? "M" : "L") + place;
        if (alone) points += `M${place}L${place}`;
        up = false;
      });
      plot.path(`line s${one.ink}`, d);
      if (points) plot.path(`line s${one.ink} point`, points);
      const last = finite(one.values).pop();
      if (last !== undefined) labels.push([y(last), `label t${one.ink}`, one.name]);
    }
    labels.sort((one, other) => one[0] - other[0]);
    let floor = topEdge;
    for (const at of labels) { at[0] = Math.max(at[0], floor); floor = at[0] + 12.5; }
    let ceiling = bottom;
    for (const at of [...labels].reverse()) { at[0] = Math.min(at[0], ceiling); ceiling = at[0] - 12.5; }
    for (const [at, kind, name] of labels) plot.text(kind, right + 6, at + 3.5, "start", name);
    return plot.svg;
  };

  Object.assign(window.isolane, { fixed, significant, bitRate, rate, time, percent, ticks, drawing, bars, lines });
})();
