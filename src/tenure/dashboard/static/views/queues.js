// The queues of the overview: how long the oldest job waits, who serves it, pause and resume.

import { path, session } from "../api.js";
import { meter } from "../charts.js";
import { act, askPause } from "../dialogs.js";
import { h } from "../dom.js";
import { count, duration, plural } from "../format.js";
import { shape } from "../icons.js";
import { link } from "../router.js";
import { badge, button, empty, long, table } from "../widgets.js";

const LATE_SCALE = 60; // a queue's bar is full at the oldest age of all queues, or at a minute
const QUEUES_SHOWN = 30;
const TIMERS = "@timers"; // the runs of timers, which workers start by themselves

/** The table of queues. */
export function queues(all, page) {
  if (!all.length)
    return empty(
      "No queue has jobs or workers.",
      "A queue appears with its first job, or with a worker that serves it.",
    );
  const scale = Math.max(LATE_SCALE, ...all.map((queue) => queue.oldest ?? 0));
  const sorted = [...all].sort(
    (a, b) =>
      (b.oldest ?? -1) - (a.oldest ?? -1) ||
      (a.name === TIMERS) - (b.name === TIMERS) ||
      a.name.localeCompare(b.name),
  );
  const rows = sorted.slice(0, page.memory.isWide ? undefined : QUEUES_SHOWN).map((queue) => ({
    key: queue.name,
    cells: [
      h(
        "div.two",
        {},
        h(
          "a.name.clip",
          { href: link("jobs", { queue: queue.name }), title: queue.name },
          long(queue.name),
        ),
        queue.name === TIMERS && h("span.muted", {}, "runs of timers"),
      ),
      h(
        "div.age",
        {},
        h(
          "span",
          { class: queue.is_late ? "bad-text" : null },
          queue.is_late && shape("warning"),
          queue.oldest === null ? "–" : duration(queue.oldest),
        ),
        queue.oldest !== null &&
          meter(queue.oldest, scale, { kind: queue.is_late ? "bad" : "accent" }),
      ),
      count(queue.waiting, queue.is_capped),
      count(queue.running),
      served(queue),
      queueState(queue),
      queueAction(queue, page),
    ],
  }));
  const rest = sorted.length - rows.length;
  return [
    table(
      "Queues",
      [
        ["Queue", "wide lead"],
        ["Oldest waits", "chart-cell"],
        ["Waiting", "number"],
        ["Running", "number"],
        ["Served by", "nowrap"],
        ["State", "state-col"],
        ["", "action-cell"],
      ],
      rows,
    ),
    rest > 0 &&
      button(`Show ${plural(rest, "more queue")}`, () => {
        page.memory.isWide = true;
        page.redraw();
      }),
  ];
}

function served({ workers, slots, waiting }) {
  if (!workers)
    return h(
      "span",
      { class: waiting ? "bad-text" : "muted" },
      waiting ? shape("warning") : null,
      "no worker",
    );
  return `${plural(workers, "worker")}, ${plural(slots, "slot")}`;
}

function isPaused(queue) {
  return queue.is_paused ?? queue.paused_for !== null; // a pause without an end has no number
}

function queueState(queue) {
  if (!isPaused(queue)) return h("span.muted", {}, "open");
  const left = queue.paused_for !== null ? `paused, ${duration(queue.paused_for)} left` : "paused";
  return h(
    "div.two",
    {},
    badge("paused", left),
    queue.pause_reason && h("span.muted.clip", { title: queue.pause_reason }, queue.pause_reason),
  );
}

function consequences({ waiting, running, is_capped: isCapped }) {
  return [
    waiting
      ? `Workers take no more of its ${plural(waiting, "waiting job", isCapped)}.`
      : "Workers start none of its jobs.",
    running && `The ${plural(running, "running job")} continue${running === 1 ? "s" : ""}.`,
    "New jobs are accepted and wait.",
  ]
    .filter(Boolean)
    .join(" ");
}

function queueAction(queue, page) {
  if (!session.may.act) return null;
  const address = path("queues", queue.name);
  return isPaused(queue)
    ? button(
        "Resume",
        () => act(`${address}/resume`, {}, `Queue ${queue.name} runs again.`, page.refresh),
        { small: true, "aria-label": `Resume queue ${queue.name}` },
      )
    : button(
        "Pause…",
        () =>
          askPause({
            title: `Pause queue ${queue.name}?`,
            address: `${address}/pause`,
            said: `Queue ${queue.name} is paused.`,
            done: page.refresh,
            text: consequences(queue),
          }),
        { small: true, "aria-label": `Pause queue ${queue.name}` },
      );
}
