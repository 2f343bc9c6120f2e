// The steps of the search: chosen with the pointer, with the buttons, or with the arrow keys while a plot has the focus.
"use strict";
(() => {
  const { steps } = JSON.parse(document.getElementById("data").textContent);
  const readout = document.getElementById("readout");
  const buttons = document.querySelectorAll("[data-go]");
  const plots = document.querySelectorAll("svg[data-steps]");
  if (!readout || steps.length === 0) return;
  let at = -1;

  const choose = (index) => {
    at = Math.max(0, Math.min(steps.length - 1, index));
    document.querySelectorAll(".step.chosen").forEach((dot) => dot.classList.remove("chosen"));
    document.querySelectorAll(`.step[data-step="${at}"]`).forEach((dot) => {
      dot.classList.add("chosen");
      dot.parentNode.appendChild(dot);
    });
    readout.replaceChildren();
    const title = document.createElement("b");
    title.textContent = `${steps[at].title} `;
    const settings = document.createElement("code");
    settings.textContent = steps[at].settings;
    readout.append(title, steps[at].text, " ", settings);
    readout.dataset.step = at;
    buttons.forEach((button) => {
      const back = button.dataset.go === "first" || button.dataset.go === "back";
      button.disabled = back ? at === 0 : at === steps.length - 1;
    });
  };
  const go = { first: () => 0, back: () => at - 1, next: () => at + 1, last: () => steps.length - 1 };
  const keys = { ArrowLeft: "back", ArrowRight: "next", ArrowUp: "back", ArrowDown: "next", Home: "first", End: "last" };

  buttons.forEach((button) => button.addEventListener("click", () => choose(go[button.dataset.go]())));
  plots.forEach((plot) => {
    plot.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.altKey || event.metaKey || !(event.key in keys)) return;
      event.preventDefault();
      choose(go[keys[event.key]]());
    });
    plot.addEventListener("click", (event) => {
      const step = event.target.dataset && event.target.dataset.step;
      if (step !== undefined) choose(Number(step));
    });
  });
  document.querySelectorAll(".needs-script").forEach((part) => { part.hidden = false; });
  choose(Number(readout.dataset.best));
})();
