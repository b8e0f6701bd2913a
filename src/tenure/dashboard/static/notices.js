// What is said beside the page: the result of an action, and a banner while there is no fresh data.

import { h, update } from "./dom.js";
import { icon, shape } from "./icons.js";

const SHOWN_FOR = 6000;

/** Say something to a screen reader; `isShown` shows it as well, for a few seconds. */
export function announce(text, { isShown = false, level = "note", link = null } = {}) {
  if (!isShown) {
    document.getElementById("announcer").textContent = text;
    return;
  }
  const toasts = document.getElementById("toasts");
  const toast = h(
    "div.toast",
    { class: `is-${level}` },
    shape(level),
    h("span", {}, text),
    link,
    h(
      "button.plain",
      { type: "button", "aria-label": "Close", onclick: () => toast.remove() },
      icon("close"),
    ),
  );
  toasts.append(toast);
  while (toasts.children.length > 3) toasts.firstChild.remove();
  // An error stays until it is closed: somebody has to read what to do.
  if (level !== "error") setTimeout(() => toast.remove(), SHOWN_FOR);
}

/** Show the banner with an error, and since when the data is old; null hides it. */
export function banner(error, age = null) {
  const element = document.getElementById("banner");
  document.body.classList.toggle("is-stale", Boolean(error && age));
  document.body.classList.toggle("is-away", Boolean(error && !age));
  if (!error) {
    element.hidden = true;
    element.replaceChildren();
    return;
  }
  update(
    element,
    shape("error"),
    h(
      "div",
      {},
      h("strong", {}, `${error.title ?? "The page cannot be shown"}. `),
      error.detail ?? error.message ?? "",
      age &&
        h("p.banner-age", {}, "What you see is ", age, " old. The page tries again by itself."),
    ),
  );
  element.hidden = false;
}
