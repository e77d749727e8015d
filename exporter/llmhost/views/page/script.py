"""The script of the status page: refreshes it in place, and marks it when it is out of date.

Scroll position, focus, opened details and selected text survive a refresh; a selection delays it.
"""

from typing import Final

SCRIPT: Final = """
"use strict";
(() => {
  const everySeconds = 5, patienceSeconds = 15, oldSeconds = 20;
  const root = document.documentElement;
  const old = document.getElementById("old");
  const age = document.getElementById("age");
  let title = document.title;
  let ageThen = Number(document.getElementById("status").dataset.age);
  let then = Date.now();
  let trouble = "";
  let timer = 0;
  let asking = false;

  const ageNow = () => ageThen + Math.max(0, Date.now() - then) / 1000;

  function spelt(seconds) {
    if (seconds < 120) return Math.round(seconds) + " s";
    if (seconds < 7200) return Math.round(seconds / 60) + " min";
    return Math.round(seconds / 3600) + " h";
  }

  function tell() {
    const why = trouble || (ageNow() > oldSeconds ? "The exporter has not answered for a while" : "");
    age.textContent = ", " + spelt(ageNow()) + " ago";
    root.classList.toggle("stale", why !== "");
    document.title = why ? "OLD: " + title : title;
    const said = why ? why + ". What is below is old." : "";
    if (old.textContent !== said) old.textContent = said;
    old.hidden = !why;
  }

  const isSelecting = () => {
    const selection = getSelection();
    return selection && !selection.isCollapsed && document.getElementById("status").contains(selection.anchorNode);
  };

  const stops = (holder) => [...holder.querySelectorAll("a[href], summary")];

  function put(page) {
    const now = document.getElementById("status"), next = document.adoptNode(page.getElementById("status"));
    for (const one of next.querySelectorAll("details[id]")) {
      const before = document.getElementById(one.id);
      if (before) one.open = before.open;
    }
    const focused = now.contains(document.activeElement) ? document.activeElement : null;
    const holder = focused && focused.closest("[id]");
    const place = holder ? stops(holder).indexOf(focused) : -1;
    const top = (one) => one.getBoundingClientRect().top;
    const marks = [...now.querySelectorAll("section[id], article[id], details[id], li[id]")];
    const mark = marks.find((one) => top(one) >= 0 && next.querySelector("#" + one.id));
    const markTop = mark ? top(mark) : 0;
    now.replaceWith(next);
    if (mark) scrollBy({ top: top(document.getElementById(mark.id)) - markTop, behavior: "instant" });
    const again = holder && document.getElementById(holder.id);
    const stop = again && stops(again)[place];
    if (stop) stop.focus({ preventScroll: true });
    document.getElementById("at").replaceWith(document.adoptNode(page.getElementById("at")));
    title = page.title;
    ageThen = Number(next.dataset.age);
    then = Date.now();
  }

  async function fetched() {
    const answer = await fetch(location.pathname, {
      cache: "no-store", redirect: "error", signal: AbortSignal.timeout(patienceSeconds * 1000)
    }).catch((error) => {
      throw new Error(error.name === "TimeoutError" ? "does not answer in time" : "does not answer");
    });
    if (!answer.ok) throw new Error("answers with an error, " + answer.status);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!page.getElementById("status")) throw new Error("answers with another page");
    return page;
  }

  async function ask() {
    clearTimeout(timer);
    if (asking || document.hidden) return;
    asking = true;
    try {
      const page = await fetched();
      if (page.documentElement.dataset.build !== root.dataset.build) return location.reload();
      const held = isSelecting();
      if (!held) put(page);
      trouble = held && ageNow() > oldSeconds ? "Text is selected, so that nothing new is shown" : "";
    } catch (error) {
      trouble = "The exporter " + error.message;
    } finally {
      asking = false;
    }
    tell();
    timer = setTimeout(ask, everySeconds * 1000);
  }

  document.addEventListener("visibilitychange", () => { tell(); ask(); });
  addEventListener("pageshow", (event) => { if (event.persisted) ask(); });
  setInterval(() => { if (!document.hidden) tell(); }, 1000);
  tell();
  timer = setTimeout(ask, everySeconds * 1000);
})();
"""
