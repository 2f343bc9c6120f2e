// What every page has: the theme button, printing, and plots saved as SVG or PNG files.
"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");

  const themes = ["auto", "light", "dark"];
  const button = document.getElementById("theme");
  // A page opened from a file may be refused storage; the choice then lasts until it is closed.
  const stored = () => { try { return localStorage.getItem("isolane-theme"); } catch { return null; } };
  const store = (theme) => { try { localStorage.setItem("isolane-theme", theme); } catch { /* see above */ } };
  const apply = (theme) => {
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    button.dataset.now = theme;
  };
  apply(themes.includes(stored()) ? stored() : "auto");
  button.addEventListener("click", () => {
    const next = themes[(themes.indexOf(button.dataset.now) + 1) % themes.length];
    store(next);
    apply(next);
  });
  document.getElementById("print").addEventListener("click", () => window.print());

  const download = (name, blob) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };

  // The colours and fonts of the style sheet, written into a copy of the plot: the file stands alone.
  const styled = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "stroke-linecap", "opacity",
    "paint-order", "font-size", "font-weight", "font-family"];
  const standalone = (svg) => {
    const copy = svg.cloneNode(true);
    const originals = svg.querySelectorAll("*");
    copy.querySelectorAll("*").forEach((element, index) => {
      const style = getComputedStyle(originals[index]);
      for (const property of styled) element.setAttribute(property, style.getPropertyValue(property));
      element.removeAttribute("class");
    });
    const { width, height } = svg.viewBox.baseVal;
    const margin = 12;
    copy.removeAttribute("class");
    copy.setAttribute("viewBox", `${-margin} ${-margin} ${width + 2 * margin} ${height + 2 * margin}`);
    copy.setAttribute("width", width + 2 * margin);
    copy.setAttribute("height", height + 2 * margin);
    const ground = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    for (const [key, value] of [["x", -margin], ["y", -margin], ["width", "100%"], ["height", "100%"],
      ["fill", getComputedStyle(document.body).backgroundColor]]) ground.setAttribute(key, value);
    copy.prepend(ground);
    return { text: new XMLSerializer().serializeToString(copy), width: width + 2 * margin, height: height + 2 * margin };
  };

  const fileName = (stem, kind) => `${stem.replace(/[^A-Za-z0-9._-]+/g, "-")}.${kind}`;

  // A PNG has three pixels per CSS pixel, which is sharp on a slide.
  const pngOf = async ({ text, width, height }) => {
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = Math.round(width * 3);
    canvas.height = Math.round(height * 3);
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  };

  const save = async (svg, stem, kind) => {
    const file = standalone(svg);
    const blob = kind === "svg" ? new Blob([file.text], { type: "image/svg+xml" }) : await pngOf(file);
    download(fileName(stem, kind), blob);
    return blob.size;
  };

  document.addEventListener("click", (event) => {
    const kind = event.target.dataset && event.target.dataset.save;
    if (!kind) return;
    const figure = event.target.closest("figure");
    save(figure.querySelector("svg"), figure.dataset.name, kind);
  });

  window.isolane = { download, save, standalone, pngOf, fileName };
})();
