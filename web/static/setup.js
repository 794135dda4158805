// The code stands behind the # of the link, so that no address that is logged holds
// it. It goes into the field, out of the address, and on to the next step.
"use strict";

(() => {
  const form = document.getElementById("code-form");
  const code = location.hash.slice(1);
  if (form && code) {
    history.replaceState(null, "", location.pathname);
    form.elements.code.value = code;
    form.requestSubmit();
  }
  const show = document.getElementById("show");
  const password = document.getElementById("password");
  if (show && password) {
    show.hidden = false;
    show.firstElementChild.addEventListener("change", (event) => {
      password.type = event.target.checked ? "text" : "password";
    });
  }
})();
