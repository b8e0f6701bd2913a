// Events: what went wrong or was repaired lately. New ones wait until they are asked for.

import { get } from "../api.js";
import { h } from "../dom.js";
import { count, exact } from "../format.js";
import { isOwn, link } from "../router.js";
import { badge, button, empty, heading, table, time } from "../widgets.js";

const KEPT = 1000;
const SHOWN = 100;
const LEVELS = [
  ["", "All"],
  ["warning", "Warnings"],
  ["note", "Notes"],
];

export const events = {
  topic: "events",
  title: () => "Events",
  async load(_, signal, page) {
    const { memory } = page;
    const isFirst = memory.rows === undefined;
    const fresh = await get("events", { after: isFirst ? "0" : String(memory.next) }, signal);
    const newest = [...fresh.events].sort((a, b) => b.n - a.n);
    memory.next = fresh.next;
    if (isFirst || !memory.rows.length) Object.assign(memory, { rows: newest, held: [] });
    else memory.held = [...newest, ...memory.held].slice(0, KEPT);
    return fresh;
  },
  render(data, page) {
    const { memory, route } = page;
    const { level = "", kind = "" } = route.query;
    const matches = (event) => (!level || event.level === level) && (!kind || event.kind === kind);
    const rows = memory.rows.filter(matches);
    const held = memory.held.filter(matches).length;
    return [
      heading("Events", { note: data.scope }),
      h(
        "nav.tabs",
        { "aria-label": "Level" },
        LEVELS.map(([name, label]) =>
          h(
            "a",
            {
              href: link("events", { level: name, kind }),
              "aria-current": level === name ? "true" : null,
            },
            name ? badge(name, label) : label,
          ),
        ),
      ),
      kind &&
        h(
          "p.hint",
          {},
          `Only ${kind}. `,
          h("a", { href: link("events", { level }) }, "Show all kinds"),
        ),
      h(
        "div.rows",
        {},
        h(
          "div.fresh-place",
          {},
          held > 0 &&
            button(
              `${count(held)} new`,
              () => {
                Object.assign(memory, {
                  rows: [...memory.held, ...memory.rows].slice(0, KEPT),
                  held: [],
                });
                page.redraw();
              },
              { kind: "fresh" },
            ),
        ),
        rows.length ? list(rows, page, level) : nothing(level || kind),
      ),
    ];
  },
};

function list(rows, { memory, redraw }, level) {
  const shown = memory.isWide ? rows : rows.slice(0, SHOWN);
  return [
    table(
      "Events",
      [["Level"], ["When"], ["Event", "main lead"], ["Kind"]],
      shown.map((event) => ({
        key: String(event.n),
        cells: [
          badge(event.level),
          h(
            "div.two",
            {},
            time(event.at),
            h("span.muted", {}, exact(event.at, null, false).slice(11, 19)),
          ),
          event.link && isOwn(event.link)
            ? h("a.event-text", { href: event.link }, event.text)
            : h("span.event-text", {}, event.text),
          h(
            "a.clip.quiet",
            { href: link("events", { level, kind: event.kind }), title: `Only ${event.kind}` },
            event.kind,
          ),
        ],
      })),
    ),
    rows.length > shown.length &&
      h(
        "div.more",
        {},
        button(`Show ${count(rows.length - shown.length)} older`, () => {
          memory.isWide = true;
          redraw();
        }),
      ),
  ];
}

function nothing(isFiltered) {
  if (isFiltered)
    return empty("No event of this kind.", h("a", { href: link("events") }, "Show all events"));
  return empty(
    "Nothing to report.",
    "When a replica dies, a job is lost and recovered, a stale write is refused or a tick is missed, it appears here.",
  );
}
