"use strict";
// A page that holds more timelines than it shows: rows of a table say which of them are seen, as A and,
// below it, as B.

const Choose = (() => {
  /// Which timelines are shown after a click on that letter of that one.
  function chosen(shown, letter, n) {
    const [a, b] = shown;
    if (letter === "A") return b === undefined || b === n ? [n] : [n, b];
    return b === n ? [a] : [a, n];
  }

  function mark(rows, shown) {
    for (const {row, n, buttons} of rows) {
      buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(shown[at] === n)));
      row.classList.toggle("shown", shown.includes(n));
    }
  }

  function attach(page) {
    const rows = [...document.querySelectorAll("tr[data-timeline]")].map((row) => ({
      row, n: Number(row.dataset.timeline),
      buttons: ["A", "B"].map((letter) => {
        const button = document.createElement("button");
        button.textContent = letter;
        button.title = letter === "A" ? "show this one" : "show this one below A, or no longer";
        return button;
      }),
    }));
    for (const {row, n, buttons} of rows) {
      const group = document.createElement("span");
      group.className = "choose";
      group.append(...buttons);
      row.cells[0].append(group);
      buttons.forEach((button, at) => button.addEventListener("click", async () => {
        const next = chosen(page.scene().numbers, "AB"[at], n);
        mark(rows, next);
        await page.choose(next);
      }));
    }
    mark(rows, page.scene().numbers);
  }

  return {attach, chosen};
})();
