// What every page of a report keeps; the value is a list of what this page does not.
(() => {
  const wrong = [];
  const shown = (node) => node.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true });

  // Only tables scroll sideways. The layout's width counts, for a phone shows a wider page by zooming out.
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) {
    wrong.push(`the page is ${document.documentElement.scrollWidth} px wide, wider than the window`);
  }

  // The verdict: one sentence, before everything but the title.
  const verdict = document.querySelector("main > header > .verdict");
  const text = verdict ? verdict.innerText.trim() : "";
  if (text.length < 20 || !text.endsWith(".")) wrong.push(`no verdict in a sentence: ${text}`);

  // The first plot stands before the first table and has a mark that is seen.
  const plot = document.querySelector("main svg.plot");
  const marks = plot && shown(plot)
    ? [...plot.querySelectorAll(".line, .area, .bar, .dot, rect[class^='v'], circle")].filter((mark) => {
      const box = mark.getBoundingClientRect();
      return box.width + box.height > 0.5;
    }) : [];
  if (!marks.length) wrong.push("no plot with a mark");
  const table = document.querySelector("main table");
  if (plot && table && table.compareDocumentPosition(plot) & Node.DOCUMENT_POSITION_FOLLOWING) {
    wrong.push("a table stands before the first plot");
  }

  // Texts differ from their ground by WCAG's ratio of 4.5, large ones of 3.
  const channels = (colour) => {
    const numbers = colour.match(/[\d.]+/g);
    return numbers ? numbers.map(Number) : [0, 0, 0, 0];
  };
  const luminance = ([r, g, b]) => {
    const linear = [r, g, b].map((value) => value / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = channels(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] > 0.5) return colour;
    }
    return [255, 255, 255];
  };
  const low = new Set();
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.textContent.trim().length > 1);
    if (!own || !shown(node) || node.closest("script, style, title, .skip, button:disabled")) continue;
    const style = getComputedStyle(node);
    const inPlot = node.namespaceURI.endsWith("svg");
    const [one, other] = [luminance(channels(inPlot ? style.fill : style.color)), luminance(ground(node))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.6 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) low.add(`contrast ${ratio.toFixed(2)} of ${node.localName}.${node.getAttribute("class")}: ${node.textContent.trim().slice(0, 30)}`);
  }
  wrong.push(...low);

  // Texts of a plot do not cover each other, and are not cut off by the window.
  for (const svg of document.querySelectorAll("svg.plot")) {
    if (!shown(svg)) continue;
    const texts = [...svg.querySelectorAll("text")].map((node) => [node.textContent, node.getBoundingClientRect()]);
    texts.forEach(([one, a], index) => {
      if (a.right > width + 1 && !svg.closest(".scroller")) wrong.push(`a text of a plot is cut off: ${one}`);
      for (const [other, b] of texts.slice(index + 1)) {
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        // A line box is higher than its letters.
        if (wide > 1 && high > 0.4 * Math.min(a.height, b.height)) {
          wrong.push(`texts overlap in ${svg.getAttribute("aria-label").slice(0, 40)}: ${one} | ${other}`);
        }
      }
    });
  }
  return wrong;
})()
