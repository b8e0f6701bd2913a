// The search field of the header: an id or its end, a task, a queue, a timer or a lock.

import { get } from "./api.js";
import { h, update } from "./dom.js";
import { icon } from "./icons.js";
import { go, link } from "./router.js";

const SHOWN = 8;
const FRESH_FOR = 30_000;

let names = [];
let namesAt = -FRESH_FOR;
let active = -1;
let input;
let options;

export function searchField() {
  input = h("input", {
    id: "search",
    type: "search",
    placeholder: "Search id, task or name",
    "aria-label": "Search for an id, a task or a name",
    role: "combobox",
    "aria-expanded": "false",
    "aria-controls": "search-options",
    "aria-autocomplete": "list",
    autocomplete: "off",
    spellcheck: "false",
    onfocus: load,
    oninput: show,
    onkeydown: move,
    onblur: () => setTimeout(hide, 150),
  });
  options = h("ul.options", {
    id: "search-options",
    role: "listbox",
    "aria-label": "Matches",
    hidden: true,
  });
  return h(
    "form.search",
    {
      role: "search",
      onsubmit: (event) => {
        event.preventDefault();
        open();
      },
    },
    icon("search"),
    input,
    h("kbd", { "aria-hidden": "true" }, "/"),
    options,
  );
}

async function load() {
  if (performance.now() - namesAt < FRESH_FOR) return;
  namesAt = performance.now();
  const [overview, timers, locks] = await Promise.all(
    [get("overview"), get("timers"), get("locks")].map((answer) => answer.catch(() => null)),
  );
  names = [
    ...(overview?.tasks ?? []).map(({ task }) => ["task", task, link("jobs", { task })]),
    ...(overview?.queues ?? []).map(({ name }) => ["queue", name, link("jobs", { queue: name })]),
    ...(timers?.timers ?? []).map(({ name, kind }) => [kind, name, link("timers", {}, name)]),
    ...(locks?.locks ?? []).map(({ name }) => ["lock", name, link("locks", { prefix: name })]),
  ];
  if (input.value) show();
}

/** The names of a kind ("task", "queue", "lock"), as far as pages show them. */
export async function known(kind) {
  await load();
  return names.filter(([each]) => each === kind).map(([, name]) => name);
}

function isId(text) {
  return /^[0-9a-f]{4,8}(-?[0-9a-f]*)*$/i.test(text) && /\d/.test(text);
}

function matches() {
  const text = input.value.trim();
  if (!text) return [];
  const byName = names.filter(([, name]) => name.toLowerCase().includes(text.toLowerCase()));
  const ids = isId(text) ? [["id", text, idAddress(text)]] : [];
  const rest =
    byName.length || ids.length
      ? []
      : [
          ["task", text, link("jobs", { task: text })],
          ["lock", text, link("locks", { prefix: text })],
        ];
  return [...ids, ...byName, ...rest].slice(0, SHOWN);
}

function idAddress(text) {
  return text.length === 36
    ? link("jobs", {}, text.toLowerCase())
    : link("jobs", { id: text.toLowerCase() });
}

function show() {
  const found = matches();
  active = Math.min(active, found.length - 1);
  input.setAttribute("aria-expanded", String(found.length > 0));
  options.hidden = found.length === 0;
  update(
    options,
    found.map(([kind, name, address], index) =>
      h(
        "li",
        {
          id: `option-${index}`,
          role: "option",
          "aria-selected": String(index === active),
          class: index === active ? "active" : null,
          onmousedown: (event) => {
            event.preventDefault();
            leave(address);
          },
        },
        h("span.kind", {}, kind),
        h("span.clip", { title: name }, name),
      ),
    ),
  );
  if (active >= 0) input.setAttribute("aria-activedescendant", `option-${active}`);
  else input.removeAttribute("aria-activedescendant");
}

function move(event) {
  const number = matches().length;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    active = number
      ? (active + (event.key === "ArrowDown" ? 1 : number + (active < 0 ? 0 : -1)) + number) %
        number
      : -1;
    show();
  } else if (event.key === "Escape") {
    input.value = "";
    hide();
    input.blur();
  } else if (event.key !== "Enter") active = -1;
}

function open() {
  const found = matches();
  const [, , address] = found[Math.max(active, 0)] ?? [];
  if (address) leave(address);
}

function leave(address) {
  input.value = "";
  hide();
  input.blur();
  go(address);
}

function hide() {
  active = -1;
  options.hidden = true;
  input.setAttribute("aria-expanded", "false");
}
