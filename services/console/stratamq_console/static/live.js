// Live tail: rows as they come, at most 200 of them, and counts of what was left out.
"use strict";

(function () {
  const MOST_ROWS = 200;
  const table = document.getElementById("tail");
  const body = table.tBodies[0];
  const pause = document.getElementById("pause");
  const state = document.getElementById("tail-state");
  const totals = { seen: 0, matched: 0, left_out: 0 };
  let source = null;

  const pad = (number) => String(number).padStart(2, "0");

  function cell(row, text, kind) {
    const made = row.insertCell();
    if (kind) made.className = kind;
    made.textContent = text;
    return made;
  }

  function show(one) {
    const row = body.insertRow(0);
    cell(row, one.queue, "number");
    const link = document.createElement("a");
    link.href = `${table.dataset.messages}${one.queue}/${one.offset}`;
    link.textContent = one.offset;
    cell(row, "", "number").append(link);
    const at = new Date(one.ms);
    const time = document.createElement("time");
    time.dateTime = at.toISOString();
    time.title = `${at.toISOString().replace("T", " ").slice(0, 23)} UTC`;
    time.textContent = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
    cell(row, "").append(time);
    cell(row, one.tag);
    cell(row, one.keys, "name");
    cell(row, one.body, "name mono");
  }

  function count(name, id, more) {
    totals[name] += more;
    document.getElementById(id).textContent = totals[name].toLocaleString();
  }

  function take(event) {
    const given = JSON.parse(event.data);
    given.rows.forEach(show);
    let left = given.left_out;
    while (body.rows.length > MOST_ROWS) body.deleteRow(-1);
    count("seen", "tail-seen", given.seen);
    count("matched", "tail-matched", given.matched);
    count("left_out", "tail-left-out", left);
  }

  function open() {
    source = new EventSource(table.dataset.url);
    source.addEventListener("open", () => { state.textContent = "Live: new messages appear at the top."; });
    source.addEventListener("messages", take);
    source.addEventListener("waiting", (event) => {
      const why = JSON.parse(event.data).why;
      state.textContent = why ? `The broker does not respond, waiting for it: ${why}` : "Live: the broker responds again.";
    });
    source.addEventListener("failed", (event) => {
      state.textContent = `Ended: ${JSON.parse(event.data).why}`;
      close();
    });
    source.addEventListener("error", () => {
      if (source) state.textContent = "The console does not respond, trying again.";
    });
    pause.textContent = "Pause";
  }

  function close() {
    if (source) source.close();
    source = null;
    pause.textContent = "Go on";
  }

  pause.hidden = false;
  pause.addEventListener("click", () => {
    if (source) {
      close();
      state.textContent = "Paused: what is stored meanwhile does not appear here.";
    } else {
      state.textContent = "Connecting …";
      open();
    }
  });
  addEventListener("pagehide", () => { if (source) source.close(); });
  open();
})();
