// What the live pages need beside htmx. Without scripts everything still works.
"use strict";

(() => {
  // htmx turns our own answers into elements. It may: they are rendered by our
  // templates, which escape whatever others wrote. Nothing else gets such a right,
  // and text never becomes script.
  const policy = window.trustedTypes?.createPolicy("countersign", { createHTML: (html) => html });
  htmx.registerExtension("countersign", {
    init: (api) => policy && api.initSecurity(policy),
  });

  // The session ended while the page was open.
  document.addEventListener("ended", () => {
    document.getElementById("ended")?.removeAttribute("hidden");
  });

  // The digest of the arguments is computed here once more, from the same bytes
  // that were decided on. Only secure contexts, localhost among them, can do that.
  const checkDigest = async () => {
    const shown = document.getElementById("args-digest");
    const said = document.getElementById("args-checked");
    if (!shown || !said || !crypto.subtle) return;
    const text = shown.dataset.prefix + "\n" + atob(shown.dataset.canonical);
    const bytes = Uint8Array.from(text, (c) => c.charCodeAt(0));
    const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    const digest = "sha256:" + Array.from(sum, (b) => b.toString(16).padStart(2, "0")).join("");
    said.textContent = digest === shown.textContent ? "computed again in this browser: it is the same" : "NOT what this browser computes: " + digest;
    said.classList.toggle("bad", digest !== shown.textContent);
  };
  document.addEventListener("DOMContentLoaded", checkDigest);
  document.addEventListener("htmx:after:swap", checkDigest);
})();
