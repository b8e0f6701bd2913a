// The switch between the system's theme, light and dark. The choice stays in this browser.

import { h } from "./dom.js";
import { icon } from "./icons.js";

const THEMES = [
  ["auto", "as the system"],
  ["light", "light"],
  ["dark", "dark"],
];

function theme() {
  return document.documentElement.dataset.theme ?? "auto";
}

function choose(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  try {
    localStorage.setItem("tenure-theme", name);
  } catch {
    // Storage is blocked: the choice lasts until the page is reloaded.
  }
}

export function themeSwitch(onChange) {
  const index = THEMES.findIndex(([name]) => name === theme());
  const [name, words] = THEMES[index];
  const [next, nextWords] = THEMES[(index + 1) % THEMES.length];
  const label = `Theme: ${words}. Switch to ${nextWords}`;
  return h(
    "button.plain.theme",
    {
      type: "button",
      title: label,
      "aria-label": label,
      "data-theme-name": name,
      onclick: () => {
        choose(next);
        onChange();
      },
    },
    icon(name),
  );
}
