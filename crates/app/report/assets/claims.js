// Rows that hold every word of the search and every choice stay; the number of them is said.
"use strict";
(() => {
  const rows = [...document.querySelectorAll("#claims tbody tr")];
  const columns = [...document.querySelectorAll("#claims thead th")].map((cell) => cell.textContent);
  const words = document.getElementById("words");
  const choices = [...document.querySelectorAll("select[data-column]")];
  const text = rows.map((row) => row.textContent.toLowerCase());
  const show = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, index) => {
      const chosen = choices.every((choice) => !choice.value
        || row.cells[columns.indexOf(choice.dataset.column)].textContent === choice.value);
      row.hidden = !(chosen && wanted.every((word) => text[index].includes(word)));
      shown += row.hidden ? 0 : 1;
    });
    document.getElementById("shown").textContent = `${shown} of ${rows.length} claims`;
  };
  for (const field of [words, ...choices]) field.addEventListener("input", show);
  show();
})();
