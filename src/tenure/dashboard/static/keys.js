// The keyboard: `/` focuses the search, `?` lists the keys, `g` and a letter go to a page.

import { h } from "./dom.js";
import { go, link } from "./router.js";
import { button } from "./widgets.js";

const PAGES = { o: "overview", j: "jobs", t: "timers", l: "locks", r: "replicas", e: "events" };
const LIST = [
  ["/", "search for an id, a task or a name"],
  ["g then o", "overview"],
  ["g then j", "jobs"],
  ["g then t", "timers"],
  ["g then l", "locks"],
  ["g then r", "replicas"],
  ["g then e", "events"],
  ["n", "show new rows of a list"],
  ["?", "this list"],
  ["Esc", "close a dialog, leave the search"],
];

export function startKeys() {
  let isGoing = false;
  document.addEventListener("keydown", (event) => {
    const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.nodeName);
    if (
      event.ctrlKey ||
      event.metaKey ||
      event.altKey ||
      isTyping ||
      document.querySelector("dialog[open]")
    )
      return;
    if (isGoing && PAGES[event.key]) {
      event.preventDefault();
      go(link(PAGES[event.key]));
    } else if (event.key === "/") {
      event.preventDefault();
      document.getElementById("search").focus();
    } else if (event.key === "?") showKeys();
    else if (event.key === "n") document.querySelector("button.fresh")?.click();
    isGoing = event.key === "g";
  });
}

export function showKeys() {
  const dialog = h(
    "dialog.keys",
    { "aria-labelledby": "keys-title", onclose: () => dialog.remove() },
    h("h2", { id: "keys-title" }, "Keys"),
    h(
      "dl",
      {},
      LIST.map(([key, text]) =>
        h(
          "div",
          {},
          h(
            "dt",
            {},
            key.split(" then ").map((part, index) => [index ? " then " : "", h("kbd", {}, part)]),
          ),
          h("dd", {}, text),
        ),
      ),
    ),
    h(
      "div.dialog-actions",
      {},
      button("Close", () => dialog.close()),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
}
