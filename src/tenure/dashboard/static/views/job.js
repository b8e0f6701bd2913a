// One job: why it is where it is, its attempts, its errors, its arguments, its family.

import { get, path, post, session } from "../api.js";
import { meter, timeline } from "../charts.js";
import { confirm, textField } from "../dialogs.js";
import { h } from "../dom.js";
import { duration, list, plural } from "../format.js";
import { icon } from "../icons.js";
import { go, link } from "../router.js";
import {
  badge,
  button,
  empty,
  facts,
  heading,
  id,
  instant,
  jobLink,
  jobState,
  section,
  table,
  time,
  why,
} from "../widgets.js";
import { contents, headers, reveal } from "./contents.js";

export const job = {
  topic: "jobs",
  title: ({ item }) => `Job ${item.slice(-8)}`,
  load: ({ item }, signal) => get(path("jobs", item), {}, signal),
  every: ({ state }) => (state === "running" || state === "waiting" ? 2 : null),
  render(data, page) {
    return [
      heading(data.task, {
        state: jobState(data),
        note: id(data.id, { full: true }),
        actions: actions(data, page),
      }),
      why(data.why, data.state === "failed" ? "error" : data.state),
      progress(data),
      section(
        "Attempts",
        { note: attemptsNote(data) },
        data.attempts.length
          ? timeline(data)
          : empty(
              "It has not run yet.",
              "Each attempt appears here with the time that it waited and ran.",
            ),
      ),
      errors(data),
      h(
        "div.columns",
        {},
        section("Facts", {}, about(data)),
        h(
          "div",
          {},
          section(
            "Contents",
            { actions: reveal(data, page) },
            contents(data, page.memory.contents),
          ),
          headers(data, page.memory.contents),
        ),
      ),
      family(data),
    ];
  },
};

function actions(data, page) {
  const can = (name) => session.may.act && data.may.includes(name);
  return [
    data.trace_link &&
      /^https?:/.test(data.trace_link) &&
      h(
        "a.button",
        { href: data.trace_link, target: "_blank", rel: "noopener noreferrer" },
        icon("trace"),
        "Open trace",
      ),
    can("requeue") &&
      button("Requeue…", () =>
        confirm({
          title: "Requeue this job?",
          label: "Requeue",
          text: `It waits again in queue ${data.queue}, and its attempts count from the start. Its handler runs once more, so its effects may happen again.`,
          run: async () =>
            said(await post(path("jobs", data.id, "requeue")), "The job waits again."),
          done: page.refresh,
        }),
      ),
    can("cancel") &&
      button(
        "Cancel…",
        () =>
          confirm({
            title: "Cancel this job?",
            label: "Cancel the job",
            kind: "danger",
            fields: [textField("reason", "Reason, for your colleagues")],
            text:
              data.state === "running"
                ? "Its handler is asked to stop. The job ends as cancelled when the handler stops."
                : "It never runs, unless it is requeued.",
            run: async (values) =>
              said(await post(path("jobs", data.id, "cancel"), values), "The job is cancelled."),
            done: page.refresh,
          }),
        { kind: "danger-quiet" },
      ),
    can("delete") &&
      button(
        "Delete…",
        () =>
          confirm({
            title: "Delete this job?",
            label: "Delete for good",
            kind: "danger",
            text: "It is removed with its arguments, result, unique key and tags. This cannot be undone.",
            run: () =>
              leaving(page, async () =>
                said(await post(path("jobs", data.id, "delete")), "The job is deleted."),
              ),
            done: () => go(link("jobs", { task: data.task })),
          }),
        { kind: "danger-quiet" },
      ),
  ].filter(Boolean);
}

// The job is gone before its page is left: the page must not ask for it any more.
async function leaving(page, run) {
  page.isLeaving = true;
  try {
    return await run();
  } catch (error) {
    page.isLeaving = false;
    throw error;
  }
}

const OUTCOMES = {
  cancelling: "The job was asked to stop.",
  cancelled: "The job is cancelled.",
  requeued: "The job waits again.",
  deleted: "The job is deleted.",
};

function said({ outcome }, otherwise) {
  return (
    OUTCOMES[outcome] ??
    (outcome && outcome !== "done" ? `Nothing was changed: the job is ${outcome}.` : otherwise)
  );
}

function progress(data) {
  if (data.state !== "running" || (data.progress === null && !data.message)) return null;
  const percent = data.progress === null ? null : Math.round(data.progress * 100);
  return h(
    "div.progress.large",
    {},
    percent !== null && meter(data.progress, 1, { label: `${percent} percent done` }),
    h("span", {}, [percent !== null && `${percent}%`, data.message].filter(Boolean).join(" · ")),
  );
}

function attemptsNote({ attempt, attempts_max: most, failures, losses, attempts }) {
  const words = [
    most ? `${attempt} of at most ${most}` : plural(attempt, "attempt"),
    failures && `${failures} failed`,
    losses && `${losses} lost with a worker`,
    attempts.length < attempt && `the last ${attempts.length} are shown`,
  ];
  return words.filter(Boolean).join(" · ");
}

// Equal errors are shown once, with the attempts that raised them: what differs stands side by side.
function errors(data) {
  const groups = new Map();
  for (const attempt of data.attempts) {
    if (attempt.error) groups.set(attempt.error, [...(groups.get(attempt.error) ?? []), attempt]);
  }
  if (data.error && !groups.has(data.error) && !groups.size) groups.set(data.error, []);
  if (!groups.size) return null;
  const traceback =
    data.trace?.trim().includes("\n") &&
    h(
      "details.error-card.whole",
      {},
      h("summary", {}, "Traceback of the last error"),
      h("pre", { tabindex: "0", "aria-label": "Traceback" }, data.trace.trim()),
    );
  const cards = [...groups]
    .reverse()
    .map(([text, attempts]) =>
      h(
        "article.error-card",
        {},
        h(
          "h3",
          {},
          attempts.length
            ? `${attempts.length > 1 ? "Attempts" : "Attempt"} ${list(attempts.map(({ attempt }) => String(attempt)))}`
            : "Error",
          attempts.length > 0 && h("span.muted", {}, ` ${attempts.at(-1).where || ""}`),
        ),
        h("pre", { tabindex: "0", "aria-label": "Error" }, text),
      ),
    );
  return section(
    "Errors",
    { note: groups.size > 1 ? `${groups.size} different ones, newest first` : null },
    h("div.error-cards", {}, cards, traceback),
  );
}

function about(data) {
  return facts([
    ["Queue", h("a", { href: link("jobs", { queue: data.queue }) }, data.queue)],
    ["Priority", data.priority === 5 ? null : String(data.priority)],
    ["Task", h("a", { href: link("jobs", { task: data.task }) }, data.task)],
    ["Timer", data.timer && h("a", { href: link("timers", {}, data.timer) }, data.timer)],
    // The store knows a digest of the owner only, which says nothing to a person.
    [
      "Owner",
      data.owner &&
        h(
          "a",
          { href: link("jobs", { owner: data.owner }), title: data.owner },
          "Show all jobs of this owner",
        ),
    ],
    [
      "Tags",
      data.tags.length
        ? h(
            "span.tags",
            {},
            data.tags.map((tag) => h("a.tag", { href: link("jobs", { tag }) }, tag)),
          )
        : null,
    ],
    ["Enqueued", instant(data.created)],
    ["Due", data.due !== data.created && instant(data.due)],
    ["Started", instant(data.started)],
    ["Finished", instant(data.finished)],
    ["Kept until", instant(data.kept_until)],
    ["Replica", data.replica && h("span", { title: data.replica }, data.where || data.replica)],
    ["Time limit", data.timeout ? duration(data.timeout) : null],
    ["Reason", data.reason],
    ["Fence", data.fence ? String(data.fence) : null],
    ["Revision", data.revision ? String(data.revision) : null],
  ]);
}

function family({ parent, children }) {
  if (!parent && !children.length) return null;
  const rows = [parent && ["parent", parent], ...children.map((child) => ["child", child])]
    .filter(Boolean)
    .map(([role, relative]) => ({
      key: `${role} ${relative.id}`,
      cells: [
        role === "parent" ? "enqueued this job" : "was enqueued by it",
        jobLink(relative),
        badge(relative.state),
        id(relative.id),
        time(relative.finished ?? relative.started ?? relative.created),
      ],
    }));
  return section(
    "Parent and children",
    {
      note: children.length ? plural(children.length, "child").replace("childs", "children") : null,
    },
    table(
      "Parent and children",
      [["Role"], ["Task", "wide lead"], ["State", "state-col"], ["Id"], ["When"]],
      rows,
    ),
  );
}
