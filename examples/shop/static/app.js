// The page follows the shop: on each event the counts and the live parts are
// taken from a fresh copy of the page. Without this script everything still works.
"use strict";

(() => {
  let busy = false;
  let again = false;

  async function refresh() {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      do {
        again = false;
        const reply = await fetch("/", { headers: { Accept: "text/html" } });
        if (!reply.ok) break;
        const fresh = new DOMParser().parseFromString(await reply.text(), "text/html");
        document.title = fresh.title;
        document.getElementById("counts").replaceChildren(...fresh.getElementById("counts").children);
        for (const part of fresh.querySelectorAll("[data-live]")) replace(document.getElementById(part.id), part);
      } while (again);
    } catch {
      // The shop is away; EventSource comes back by itself.
    } finally {
      busy = false;
    }
  }

  // A part in which somebody is typing or tabbing is left alone.
  function replace(old, part) {
    if (old.contains(document.activeElement) && document.activeElement.matches("input, select")) return;
    if (old.innerHTML === part.innerHTML) return;
    const open = [...old.querySelectorAll("details")].map((d) => d.open);
    const focused = [...old.querySelectorAll("button, summary, a")].indexOf(document.activeElement);
    old.replaceChildren(...part.childNodes);
    old.querySelectorAll("details").forEach((d, i) => (d.open = open[i]));
    if (focused >= 0) old.querySelectorAll("button, summary, a")[focused]?.focus({ preventScroll: true });
  }

  // A refused form says so at its own place, until the part is drawn anew.
  function trouble(form, message) {
    form.querySelector(".trouble")?.remove();
    const p = document.createElement("p");
    p.className = "trouble";
    p.setAttribute("role", "alert");
    p.textContent = message;
    form.append(p);
  }

  // Forms post in the background, so that the page does not jump.
  document.addEventListener("submit", async (event) => {
    event.preventDefault();
    const form = event.target;
    document.activeElement?.matches("input, select") && document.activeElement.blur();
    try {
      const reply = await fetch(form.action, {
        method: "POST",
        headers: { Accept: "application/json" },
        body: new URLSearchParams(new FormData(form)),
      });
      if (!reply.ok) {
        trouble(form, (await reply.json()).message);
        return;
      }
    } catch {
      form.submit();
      return;
    }
    refresh();
  });

  new EventSource("/events").onmessage = refresh;
})();
