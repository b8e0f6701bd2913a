// The overview: what needs attention, in words; then the numbers; then charts and tables.

import { get } from "../api.js";
import { meter, rates, sum } from "../charts.js";
import { h } from "../dom.js";
import { count, duration, plural, summary } from "../format.js";
import { shape } from "../icons.js";
import { isOwn, link } from "../router.js";
import {
  clip,
  code,
  empty,
  figure,
  heading,
  long,
  nextStep,
  section,
  table,
  time,
} from "../widgets.js";
import { queues } from "./queues.js";

export const overview = {
  topic: "overview",
  title: () => "Overview",
  load: (_, signal) => get("overview", {}, signal),
  every: (data) => (data.queues.some((queue) => queue.waiting || queue.running) ? 4 : 15),
  render(data, page) {
    if (isNew(data)) return [heading("Overview"), welcome()];
    return [
      heading("Overview"),
      attention(data),
      figures(data),
      data.rates && section("Last hour", { note: lastHour(data.rates) }, rates(data.rates)),
      section("Queues", { note: "oldest waiting job first" }, queues(data.queues, page)),
      h(
        "div.columns",
        {},
        section("Failures of the last hour", {}, failures(data.failures)),
        section(
          "Next ticks",
          { actions: h("a", { href: link("timers") }, "All timers") },
          ticks(data.ticks),
        ),
      ),
      data.tasks.length > 0 && section("Tasks, last hour", {}, tasks(data.tasks)),
    ];
  },
};

function isNew({ queues, tasks, replicas, ticks }) {
  return !queues.length && !tasks.length && !ticks.length && !replicas.alive && !replicas.expired;
}

function welcome() {
  return h(
    "div.empty.welcome",
    {},
    h("p.empty-title", {}, "Nothing has happened on this store yet."),
    h(
      "p",
      {},
      "As soon as a worker runs or a job is enqueued, this page says what needs attention, how long jobs wait, and what fails.",
    ),
    h(
      "ol",
      {},
      h(
        "li",
        {},
        "Declare a task with ",
        code("@app.task"),
        " and enqueue it: ",
        code("await send_mail.enqueue(7)"),
      ),
      h("li", {}, "Start a worker: ", code("tenure worker service:app")),
      h("li", {}, "Check the store, if jobs do not appear here: ", code("tenure doctor")),
    ),
  );
}

function attention({ attention: items, queues, replicas }) {
  if (!items.length) {
    const oldest = Math.max(0, ...queues.map((queue) => queue.oldest ?? 0));
    const words = [
      `${plural(sum(queues.map((queue) => queue.running)), "job")} running`,
      oldest ? `the oldest job waits for ${duration(oldest)}` : "no job waits",
      `${plural(replicas.alive, "replica")} alive`,
    ];
    return h(
      "div.calm",
      {},
      shape("succeeded"),
      h("p", {}, h("strong", {}, "Nothing needs attention. "), `${words.join(", ")}.`),
    );
  }
  return h(
    "ul.attention",
    { "aria-label": "Needs attention" },
    items.map((item) =>
      h(
        "li",
        { class: `is-${item.level}` },
        shape(item.level),
        h(
          "div",
          {},
          h("p.attention-text", {}, h("span.visually-hidden", {}, `${item.level}: `), item.text),
          item.next && h("p.attention-next", {}, nextStep(item.next)),
        ),
        item.link &&
          isOwn(item.link) &&
          h("a.button.small", { href: item.link, "aria-label": `Show: ${item.text}` }, "Show"),
      ),
    ),
  );
}

function figures({ queues, rates: hour, failures: failed, replicas }) {
  // Workers leave their counts about every 15 s; what has failed is known at once.
  const failures = hour && Math.max(sum(hour.failed), sum(failed.map((task) => task.count)));
  const isCapped = queues.some((queue) => queue.is_capped);
  const busy = `${count(replicas.busy)} of ${plural(replicas.slots, "slot")}`;
  return h(
    "div.figures",
    {},
    figure("waiting", count(sum(queues.map((queue) => queue.waiting)), isCapped), {
      href: link("jobs", { state: "waiting" }),
    }),
    figure("running", count(sum(queues.map((queue) => queue.running))), {
      href: link("jobs", { state: "running" }),
      note: replicas.slots ? busy : null,
    }),
    hour &&
      figure("succeeded, last hour", count(sum(hour.succeeded)), {
        href: link("jobs", { state: "succeeded" }),
      }),
    hour &&
      figure("failed, last hour", count(failures), {
        href: link("jobs", { state: "failed" }),
        kind: failures ? "bad" : null,
      }),
    figure(replicas.alive === 1 ? "replica alive" : "replicas alive", count(replicas.alive), {
      href: link("replicas"),
      note: replicas.expired ? `${count(replicas.expired)} expired` : null,
    }),
  );
}

function lastHour({ succeeded, failed, retried }) {
  const words = [
    ["ok", `${count(sum(succeeded))} succeeded`],
    ["again", `${count(sum(retried ?? []))} retried`],
    ["bad", `${count(sum(failed))} failed`],
  ];
  return words.map(([kind, text]) => h("span.key", { class: kind }, h("i"), text));
}

function failures(all) {
  if (!all.length)
    return empty("No job has failed.", "Failures are grouped here by task, with the newest error.");
  return h(
    "ul.list",
    {},
    all.map((failure) =>
      h(
        "li",
        { "data-key": failure.task },
        h(
          "div.list-head",
          {},
          h(
            "a.name.clip",
            { href: link("jobs", { state: "failed", task: failure.task }), title: failure.task },
            long(failure.task),
          ),
          h("span.bad-text.nowrap", {}, `${count(failure.count)} failed`),
          h("span.muted.push", {}, time(failure.at)),
        ),
        h(
          "a.error-line.clip",
          {
            href: failure.job
              ? link("jobs", {}, failure.job)
              : link("jobs", { state: "failed", task: failure.task }),
            title: failure.error,
          },
          summary(failure.error),
        ),
      ),
    ),
  );
}

function ticks(all) {
  if (!all.length)
    return empty(
      "No timer is declared.",
      "Declare one with ",
      code('@app.timer(every="60s")'),
      ".",
    );
  return h(
    "ul.list",
    {},
    all.map((tick) =>
      h(
        "li",
        { "data-key": tick.timer },
        h(
          "div.list-head",
          {},
          h("a.name.clip", { href: link("timers", {}, tick.timer), title: tick.timer }, long(tick.timer)),
          h("span.push", {}, time(tick.at)),
        ),
        h("p.muted.clip", { title: tick.rule }, tick.rule),
      ),
    ),
  );
}

function tasks(all) {
  const scale = Math.max(...all.map((task) => task.seconds_max ?? 0));
  return table(
    "Tasks of the last hour",
    [
      ["Task", "wide lead"],
      ["Queue"],
      ["Succeeded", "number"],
      ["Retried", "number"],
      ["Failed", "number"],
      ["Mean", "number"],
      ["Longest", "number"],
      ["Longest, compared", "chart-cell hide-phone"],
    ],
    all.map((task) => ({
      key: `${task.task} ${task.queue}`,
      cells: [
        h("a.name.clip", { href: link("jobs", { task: task.task }), title: task.task }, long(task.task)),
        clip(task.queue),
        count(task.succeeded),
        count(task.retried),
        task.failed
          ? h(
              "a.bad-text",
              { href: link("jobs", { state: "failed", task: task.task }) },
              count(task.failed),
            )
          : "0",
        duration(task.seconds_mean),
        duration(task.seconds_max),
        meter(task.seconds_max ?? 0, scale, { kind: "grey" }),
      ],
    })),
  );
}
