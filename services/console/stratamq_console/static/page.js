// Times in the reader's zone, and tables that can be copied as text. Pages work without it.
"use strict";

(function () {
  const pad = (number) => String(number).padStart(2, "0");

  function local(time) {
    const at = new Date(time.dateTime);
    if (isNaN(at)) return;
    const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
    const clock = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
    time.textContent = `${day} ${clock}`;
  }

  function asText(table) {
    return Array.from(table.rows, (row) =>
      Array.from(row.cells, (cell) => cell.innerText.replace(/\s+/g, " ").trim()).join("\t")
    ).join("\n");
  }

  function copyable(table) {
    if (table.dataset.copy || !navigator.clipboard) return;
    table.dataset.copy = "yes";
    const button = document.createElement("button");
    button.type = "button";
    button.className = "quiet copy";
    button.textContent = "Copy as text";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(asText(table));
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy as text"; }, 2000);
    });
    table.parentElement.after(button);
  }

  function prepare(part) {
    part.querySelectorAll("time[datetime]").forEach(local);
    part.querySelectorAll(".wide > table").forEach(copyable);
  }

  prepare(document);
  document.addEventListener("htmx:load", (event) => prepare(event.detail.elt));
})();
