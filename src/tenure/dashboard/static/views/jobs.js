// The list of jobs: filters that are in the address, rows that wait until they are asked for, and
// actions on all jobs of a filter.

import { get, session } from "../api.js";
import { meter } from "../charts.js";
import { h } from "../dom.js";
import { between, count, duration, list, plural, summary } from "../format.js";
import { announce } from "../notices.js";
import { go, link } from "../router.js";
import { known } from "../search.js";
import {
  badge,
  button,
  clip,
  code,
  empty,
  heading,
  id,
  jobLink,
  jobState,
  table,
  time,
} from "../widgets.js";
import { bulkActions } from "./bulk.js";
import { box, boxOfAll, choice, mayChoose } from "./chosen.js";

const STATES = ["waiting", "running", "succeeded", "failed", "cancelled"];
const FIELDS = [
  ["queue", "Queue"],
  ["task", "Task"],
  ["tag", "Tag"],
  ["owner", "Owner"],
  ["id", "Id or its end"],
  ["error", "Error text"],
];
const SUGGESTED = ["queue", "task"];
const FILTERS = ["state", ...FIELDS.map(([name]) => name), "timers"];
const SIZE = 50;
const ROWS_MAX = 500;

export const jobs = {
  topic: "jobs",
  title: ({ query }) => (query.state ? `${capital(query.state)} jobs` : "Jobs"),
  async load({ query }, signal, page) {
    const fresh = await get("jobs", { ...filterOf(query), limit: SIZE }, signal);
    merge(page.memory, fresh);
    return fresh;
  },
  every: (data) => (data.jobs.some((job) => job.state === "running") ? 4 : null),
  render(data, page) {
    const { memory, route } = page;
    const filter = filterOf(route.query);
    return [
      heading("Jobs", { actions: bulkActions(filter, page) }),
      states(filter),
      fields(filter, page),
      memory.note && h("p.hint", {}, memory.note),
      h(
        "div.rows",
        {},
        h(
          "div.fresh-place",
          {},
          memory.held.length > 0 &&
            button(
              `${count(memory.held.length, memory.held.length >= SIZE)} new`,
              () => {
                release(memory);
                page.redraw();
                window.scrollTo(0, 0);
              },
              { kind: "fresh" },
            ),
        ),
        memory.rows.length
          ? rows(memory, filter, page)
          : memory.cursor
            ? empty("None among the newest jobs so far.", "Older ones may match.")
            : nothing(filter),
      ),
      memory.cursor && more(memory, filter, page),
      mayChoose() && choice(memory.rows, page),
    ];
  },
};

function capital(word) {
  return word.charAt(0).toUpperCase() + word.slice(1);
}

function filterOf(query) {
  return Object.fromEntries(
    FILTERS.filter((name) => query[name]).map((name) => [name, query[name]]),
  );
}

// Rows stay where they are: known jobs are updated in place, new ones are held back and counted.
// A job that has left the filter stays as well, marked, until the list is asked for anew.
function merge(memory, fresh) {
  const isFirst = memory.rows === undefined;
  memory.fresh = fresh;
  if (isFirst || (memory.rows.length === 0 && fresh.jobs.length)) {
    release(memory);
    return;
  }
  const byId = new Map(fresh.jobs.map((job) => [job.id, job]));
  const known = new Set(memory.rows.map(({ job }) => job.id));
  memory.rows = memory.rows.map(({ job }, index) => ({
    job: byId.get(job.id) ?? job,
    isGone: !byId.has(job.id) && index < SIZE && !fresh.cursor,
  }));
  memory.held = fresh.jobs.filter(({ id: key }) => !known.has(key));
}

function release(memory) {
  Object.assign(memory, {
    rows: memory.fresh.jobs.map((job) => ({ job, isGone: false })),
    held: [],
    cursor: memory.fresh.cursor,
    note: memory.fresh.note,
  });
}

function states(filter) {
  const { state, ...rest } = filter;
  const tab = (name, label) =>
    h(
      "a",
      {
        href: link("jobs", { state: name, ...rest }),
        "aria-current": (state ?? "") === name ? "true" : null,
      },
      label,
    );
  return h(
    "nav.tabs",
    { "aria-label": "State" },
    tab("", "All"),
    STATES.map((name) => tab(name, badge(name))),
  );
}

function fields(filter, { memory, redraw }) {
  const submit = (event) => {
    event.preventDefault();
    const values = Object.fromEntries(
      [...new FormData(event.currentTarget)].map(([name, text]) => [name, text.trim()]),
    );
    go(link("jobs", { state: filter.state, ...values }));
  };
  const shown = FIELDS.filter(([name]) => name !== "owner" || session.may.owners);
  const isFiltered = shown.some(([name]) => filter[name]);
  const isOpen = memory.isFiltering ?? isFiltered;
  return h(
    "form.filters",
    { onsubmit: submit, "aria-label": "Filters", class: isOpen ? null : "closed" },
    h(
      "div.filter-toggle",
      {},
      button(isOpen ? "Hide filters" : "Filters…", () => {
        memory.isFiltering = !isOpen;
        redraw();
      }),
    ),
    shown.map(([name, label]) =>
      h(
        "label.field",
        { class: filter[name] ? "set" : null },
        h("span", {}, label),
        h("input", {
          type: "search",
          name,
          value: filter[name] ?? "",
          autocomplete: "off",
          spellcheck: "false",
          list: SUGGESTED.includes(name) ? `known-${name}` : null,
          onfocus: SUGGESTED.includes(name) ? () => void suggest(name) : null,
          onsearch: (event) => event.currentTarget.form.requestSubmit(),
        }),
      ),
    ),
    SUGGESTED.map((name) => h("datalist", { id: `known-${name}`, "data-keep": true })),
    h(
      "label.check",
      {},
      h("input", {
        type: "checkbox",
        name: "timers",
        value: "1",
        checked: Boolean(filter.timers),
        onchange: (event) => event.currentTarget.form.requestSubmit(),
      }),
      "Runs of timers",
    ),
    h(
      "div.filter-actions",
      {},
      h("button.button", { type: "submit" }, "Filter"),
      isFiltered && h("a.button.quiet", { href: link("jobs", { state: filter.state }) }, "Clear"),
    ),
  );
}

// Names have to be complete, and nobody types a module path by heart.
async function suggest(name) {
  const names = await known(name);
  document
    .getElementById(`known-${name}`)
    ?.replaceChildren(...names.map((value) => h("option", { value })));
}

function rows({ rows: shown }, filter, page) {
  const isChoosing = mayChoose();
  const columns = [
    ...(isChoosing ? [[boxOfAll(shown, page), "choice-cell"]] : []),
    ["State", "job-state"],
    ["Task", "wide lead"],
    ["Attempt", "number"],
    ["When"],
    ["Took", "number"],
    ["Remarks", "wide wider"],
  ];
  return table(
    "Jobs",
    columns,
    shown.map(({ job, isGone }) => ({
      key: job.id,
      class: isGone ? "gone" : null,
      cells: [
        ...(isChoosing ? [box(job, page)] : []),
        [jobState(job), isGone && h("span.muted", {}, filter.state ? "left this list" : "removed")],
        h(
          "div.two",
          {},
          jobLink(job),
          h(
            "div.line",
            {},
            id(job.id),
            h(
              "span.muted.clip",
              { title: job.queue },
              job.queue,
              job.priority !== 5 && ` · priority ${job.priority}`,
            ),
          ),
        ),
        attempts(job),
        when(job),
        job.started && job.state !== "waiting" ? took(job) : h("span.muted.dash", {}, "–"),
        remarks(job),
      ],
    })),
  );
}

function attempts({ attempt, attempts_max: most, losses }) {
  const title = losses ? `lost with its worker: ${plural(losses, "time")}` : null;
  return h(
    "span",
    { title },
    attempt ? String(attempt) : "0",
    most && h("span.muted", {}, ` / ${most}`),
    losses > 0 && h("span.muted", {}, ` · ${losses} lost`),
  );
}

function when(job) {
  if (job.finished) return time(job.finished);
  if (job.state === "running") return time(job.started, { prefix: "started " });
  return Date.parse(job.due) > Date.parse(job.created) + 1000
    ? time(job.due, { prefix: "due " })
    : time(job.created, { prefix: "enqueued " });
}

function took(job) {
  const seconds = between(job.started, job.finished);
  return duration(job.state === "running" ? Math.round(seconds) : seconds);
}

function remarks(job) {
  const parts = [];
  if (job.state === "running" && job.progress !== null) {
    parts.push(
      h(
        "div.progress",
        {},
        meter(job.progress, 1, { label: `${Math.round(job.progress * 100)} percent done` }),
        h("span", {}, `${Math.round(job.progress * 100)}%`),
      ),
    );
  }
  if (job.message && job.state === "running") parts.push(clip(job.message));
  else if (job.why) parts.push(clip(job.why));
  if (job.error) parts.push(h("span.error-line.clip", { title: job.error }, summary(job.error)));
  if (!parts.length && job.where)
    parts.push(h("span.muted.clip", { title: job.where }, `on ${job.where}`));
  return h("div.two", {}, parts);
}

function nothing(filter) {
  const names = Object.keys(filter).filter((name) => name !== "timers");
  if (!names.length)
    return empty(
      "No jobs are stored.",
      "Enqueue one: ",
      code("await send_mail.enqueue(7)"),
      ". Finished jobs stay here until their retention ends: a day, or 7 days after a failure.",
    );
  const words = names.map((name) =>
    name === "state" ? filter.state : `${name} “${filter[name]}”`,
  );
  return empty(
    `No job matches ${list(words)}.`,
    "Names of tasks, queues and tags have to be complete. A finished job is removed after its retention. ",
    h("a", { href: link("jobs") }, "Show all jobs"),
  );
}

function more(memory, filter, page) {
  if (memory.rows.length >= ROWS_MAX)
    return h(
      "p.hint",
      {},
      `The first ${count(ROWS_MAX)} jobs are shown. Narrow the filter to see others.`,
    );
  const label = memory.note ? "Search on" : "Show more";
  return h(
    "div.more",
    {},
    button(memory.isExtending ? "Loading…" : label, async () => {
      if (memory.isExtending) return;
      memory.isExtending = true;
      page.redraw();
      try {
        const next = await get("jobs", { ...filter, cursor: memory.cursor, limit: SIZE });
        const known = new Set(memory.rows.map(({ job }) => job.id));
        memory.rows = [
          ...memory.rows,
          ...next.jobs.filter((job) => !known.has(job.id)).map((job) => ({ job, isGone: false })),
        ];
        memory.cursor = next.cursor;
        memory.note = next.note;
      } catch (error) {
        announce(error.message, { isShown: true, level: "error" });
      }
      memory.isExtending = false;
      page.redraw();
    }),
  );
}
