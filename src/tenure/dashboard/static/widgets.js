// The parts that all pages are made of.

import { h } from "./dom.js";
import { duration, exact, now, relative, sentence, shortId } from "./format.js";
import { icon, shape } from "./icons.js";
import { announce } from "./notices.js";
import { link } from "./router.js";

/** The title of a page, its crumbs in the header, and what stands at its right. */
export function heading(title, { state = null, note = null, actions = null } = {}) {
  return h(
    "div.heading",
    {},
    h("div.heading-text", {}, h("h1", {}, title), state, note && h("p.heading-note", {}, note)),
    actions && h("div.actions", {}, actions),
  );
}

export function section(title, { note = null, actions = null, id = null } = {}, ...children) {
  return h(
    "section",
    { id, "aria-label": title },
    h(
      "div.section-head",
      {},
      h("h2", {}, title),
      note && h("span.note", {}, note),
      actions && h("div.actions", {}, actions),
    ),
    children,
  );
}

/** A state or an outcome, by shape, word and colour. */
export function badge(state, word = state) {
  return h(
    "span.badge",
    { class: `is-${state.replace(" ", "-")}` },
    shape(state),
    h("span", {}, word),
  );
}

/** The state of a job, as the command line shows it. */
export function jobState(job) {
  return badge(job.is_cancelling && job.state === "running" ? "cancelling" : job.state);
}

/** An instant relative to now. It keeps counting, and shows the exact time when pointed at. */
export function time(instant, { tz = null, prefix = "" } = {}) {
  if (!instant) return h("span.muted.dash", {}, "–");
  return h(
    "time",
    {
      datetime: instant,
      title: exact(instant, tz),
      "data-live": "relative",
      "data-prefix": prefix,
    },
    prefix + relative(instant),
  );
}

/** An instant in details: exact, and relative to now. */
export function instant(at) {
  return (
    at && [
      h("span.nowrap", {}, exact(at, null, false)),
      " ",
      h("span.muted.nowrap", {}, "(", time(at), ")"),
    ]
  );
}

/** How long something lasts that has begun and is not over. */
export function since(instant) {
  return h(
    "time",
    { datetime: instant, title: `since ${exact(instant)}`, "data-live": "since" },
    sinceText(instant),
  );
}

/** The time until an instant; `over` is shown afterwards. */
export function countdown(instant, over = "now") {
  return h(
    "time",
    { datetime: instant, title: exact(instant), "data-live": "until", "data-over": over },
    untilText(instant, over),
  );
}

function sinceText(instant) {
  return duration(Math.max(0, Math.round((now() - Date.parse(instant)) / 1000)));
}

function untilText(instant, over) {
  const seconds = Math.ceil((Date.parse(instant) - now()) / 1000);
  return seconds > 0 ? duration(seconds) : over;
}

/** Let all relative times of the page count. */
export function startTimes() {
  setInterval(() => {
    if (document.hidden || document.body.classList.contains("is-stale")) return;
    for (const element of document.querySelectorAll("time[data-live]")) {
      const { live, over, prefix } = element.dataset;
      const instant = element.getAttribute("datetime");
      const text =
        live === "relative"
          ? (prefix ?? "") + relative(instant)
          : live === "since"
            ? sinceText(instant)
            : untilText(instant, over);
      const node = element.firstChild;
      if (node && node.data !== text) node.data = text;
    }
  }, 1000);
}

/** An id, shortened in the middle; a click copies it. */
export function id(text, { full = false } = {}) {
  return h(
    "button.id",
    {
      type: "button",
      class: full ? "full" : null,
      title: `${text}\nClick to copy`,
      "aria-label": `${full ? text : shortId(text)}, copy ${text}`,
      onclick: () => copy(text),
    },
    full ? text : shortId(text),
  );
}

async function copy(text, what = shortId(text)) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // no permission, or the page is served without TLS
    const area = h("textarea.visually-hidden", {}, text);
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  announce(`Copied ${what}`, { isShown: true });
}

const TAIL = 14;
const LAST_WORD = /[.:/][^.:/]{1,20}$/; // of a module path, or of a key such as "invoice:42"

/** A name that may be long: what is too much of it is left out in the middle, before its end. */
export function long(name) {
  if (name.length <= 2 * TAIL) return name;
  const separator = name.match(LAST_WORD);
  const at = separator ? separator.index + 1 : name.length - TAIL;
  return h(
    "span.long",
    {},
    h("span.clip", {}, name.slice(0, at)),
    h("span.tail", {}, name.slice(at)),
  );
}

/** A text that may be long; the whole of it is shown when pointed at. */
export function clip(text, tag = "span") {
  return h(`${tag}.clip`, { title: text }, text);
}

/** What a page or a section says when there is nothing to show, and how to get it. */
export function empty(title, ...hint) {
  return h("div.empty", {}, h("p.empty-title", {}, title), hint.length > 0 && h("p", {}, hint));
}

export function code(text) {
  return h("code", {}, text);
}

/** A button for an action. `kind` is "primary" or "danger". */
export function button(
  label,
  onclick,
  { kind = "", title = null, disabled = false, iconName = null, small = false, ...rest } = {},
) {
  return h(
    "button.button",
    {
      type: "button",
      class: [kind, small && "small"].filter(Boolean).join(" ") || null,
      onclick,
      title,
      disabled,
      ...rest,
    },
    iconName && icon(iconName),
    label,
  );
}

/**
 * A table that becomes cards on a phone. `columns` are [heading, class]; `rows` are
 * {key, cells, class}.
 */
export function table(label, columns, rows, { cards = true } = {}) {
  return h(
    "div.table-frame",
    { tabindex: "0", role: "region", "aria-label": label },
    h(
      "table",
      { class: cards ? "cards" : null },
      h("caption.visually-hidden", {}, label),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          columns.map(([title, kind]) => h("th", { scope: "col", class: kind ?? null }, title)),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((row) =>
          h(
            "tr",
            { "data-key": row.key, class: row.class ?? null },
            row.cells.map((cell, index) =>
              h(
                "td",
                { class: columns[index][1] ?? null, "data-label": headingText(columns[index][0]) },
                h("div.cell", {}, cell),
              ),
            ),
          ),
        ),
      ),
    ),
  );
}

function headingText(title) {
  return typeof title === "string" ? title : "";
}

/** A number with its meaning, as a link to where it is explained. */
export function figure(label, value, { href = null, note = null, kind = null } = {}) {
  const content = [
    h("span.figure-value", {}, value),
    h("span.figure-label", {}, label),
    note && h("span.figure-note", {}, note),
  ];
  return href
    ? h("a.figure", { href, class: kind }, content)
    : h("div.figure", { class: kind }, content);
}

/** Facts as pairs of a name and a value; pairs without a value are left out. */
export function facts(pairs) {
  return h(
    "dl.facts",
    {},
    pairs
      .filter(([, value]) => value || value === 0)
      .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );
}

export function jobLink(job) {
  return h("a.name", { href: link("jobs", {}, job.id), title: job.task }, long(job.task));
}

/** Why something waits or does not run, and what to do. */
export function why(reason, level = "note") {
  if (!reason?.text) return null;
  return h(
    "div.why",
    { class: `is-${level}` },
    shape(level),
    h(
      "div",
      {},
      h("p.why-text", {}, inWords(reason.text)),
      reason.next && h("p.why-next", {}, nextStep(reason.next)),
    ),
  );
}

/** A sentence of the server, with its instants in the zone of the reader. */
function inWords(text) {
  return sentence(text).map((part) =>
    typeof part === "string"
      ? part
      : h("time", { datetime: part.instant, title: part.utc }, exact(part.instant, null, false)),
  );
}

/** What to do; a command in it is copied with a click. */
export function nextStep(text) {
  const [, words, command] = text.match(/^(.*?)(tenure [a-z]+ .*)$/) ?? [null, text, ""];
  return [
    words,
    command &&
      h(
        "button.command",
        {
          type: "button",
          title: "Click to copy",
          "aria-label": `copy ${command}`,
          onclick: () => copy(command, "the command"),
        },
        command,
      ),
  ];
}
