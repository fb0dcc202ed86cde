// Times in the reader's zone, tables that can be copied as text, and whether live parts are old.
// Pages work without it.
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

  // Times are shown without their zone, which is said once.
  function tellZone() {
    const told = document.getElementById("zone");
    const minutes = -new Date().getTimezoneOffset();
    const size = `${pad(Math.trunc(Math.abs(minutes) / 60))}:${pad(Math.abs(minutes) % 60)}`;
    const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
    const zone = `your zone, ${name} (UTC${minutes < 0 ? "−" : "+"}${size})`;
    told.textContent = `Times are in ${zone}; each shows UTC when the pointer is on it. Times that you type count as UTC.`;
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

  // A live part that could not be loaded again: what stands there is old, until the next try works.
  function tellOld(why) {
    let told = document.getElementById("old");
    if (!told) {
      told = document.createElement("p");
      told.id = "old";
      told.className = "problem";
      told.setAttribute("role", "status");
      document.getElementById("content").prepend(told);
      told.dataset.since = new Date().toLocaleTimeString();
    }
    told.textContent = `Not up to date since ${told.dataset.since}: ${why} This page asks again by itself.`;
  }

  function sentenceOf(answer) {
    const page = new DOMParser().parseFromString(answer, "text/html");
    const said = page.querySelector("p.problem");
    return said ? said.textContent.replace(/[^.]$/, "$&.") : "the console could not answer.";
  }

  document.addEventListener("htmx:responseError", (event) => {
    tellOld(sentenceOf(event.detail.xhr.responseText));
  });
  document.addEventListener("htmx:sendError", () => tellOld("the console does not respond."));
  document.addEventListener("htmx:afterSwap", () => {
    const told = document.getElementById("old");
    if (told) told.remove();
  });

  tellZone();
  prepare(document);
  document.addEventListener("htmx:load", (event) => prepare(event.detail.elt));
})();
