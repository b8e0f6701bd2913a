// What a job carries: masked until a viewer who may see it asks for it.

import { path, post } from "../api.js";
import { h } from "../dom.js";
import { bytes, list } from "../format.js";
import { announce } from "../notices.js";
import { button, code, facts, section } from "../widgets.js";

const MASK = "••••••••";

/** The button that shows the contents, if the viewer may see them. */
export function reveal(data, page) {
  const { memory } = page;
  if (memory.contents)
    return button(
      "Hide",
      () => {
        memory.contents = null;
        page.redraw();
      },
      { small: true },
    );
  if (!data.may.includes("contents"))
    return h(
      "span.muted",
      { title: "Viewers with may_reveal see the contents, unless a rule of the task forbids it." },
      "masked",
    );
  return button(
    "Reveal",
    async () => {
      try {
        memory.contents = await post(path("jobs", data.id, "contents"));
        page.redraw();
      } catch (error) {
        announce(error.message, { isShown: true, level: "error" });
      }
    },
    {
      small: true,
      title: "Shows arguments, checkpoint, result and headers. The audit log records who looked.",
    },
  );
}

/** Arguments, checkpoint and result: masked, or as the server has shown them. */
export function contents(data, shown) {
  if (shown) {
    const parts = [
      ["Arguments", shown.arguments],
      ["Checkpoint", shown.checkpoint],
      ["Result", shown.result],
    ];
    const notes = [
      shown.masked?.length && `Masked by a rule: ${list(shown.masked)}.`,
      shown.too_large?.length && `Too large for this page: ${list(shown.too_large)}.`,
      shown.result_problem,
    ];
    return [
      notes.filter(Boolean).map((note) => h("p.hint", {}, note)),
      parts
        .filter(([, value]) => value !== null && value !== undefined)
        .map(([name, value]) =>
          h(
            "div.content",
            {},
            h("h3", {}, name),
            h(
              "pre",
              { tabindex: "0", "aria-label": name },
              typeof value === "string" ? value : JSON.stringify(value, null, 2),
            ),
          ),
        ),
    ];
  }
  const { arguments: sizes, checkpoint, result } = data.sizes;
  const names = data.arguments.names;
  return [
    names.length
      ? h(
          "dl.masked",
          {},
          names.map((name) =>
            h("div", {}, h("dt", {}, name), h("dd", { "aria-label": "masked" }, MASK)),
          ),
        )
      : h("p.muted", {}, "No arguments."),
    h(
      "p.muted",
      {},
      [
        `Arguments ${bytes(sizes)}`,
        checkpoint && `checkpoint ${bytes(checkpoint)}`,
        result && `result ${bytes(result)}`,
      ]
        .filter(Boolean)
        .join(" · "),
    ),
  ];
}

/** The headers: most are masked, or as the server has shown them. */
export function headers(data, shown) {
  const all = shown?.headers ?? data.headers;
  const names = Object.keys(all);
  return (
    names.length > 0 &&
    section(
      "Headers",
      {},
      facts(
        names.map((name) => [
          name,
          all[name] === null ? h("span.muted", { "aria-label": "masked" }, MASK) : code(all[name]),
        ]),
      ),
    )
  );
}
