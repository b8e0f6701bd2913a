// Replicas: the processes that run jobs and timers, their beats, and what they are running.

import { get } from "../api.js";
import { meter } from "../charts.js";
import { h } from "../dom.js";
import { bytes, count, duration } from "../format.js";
import { link } from "../router.js";
import { badge, code, empty, heading, id, table, time } from "../widgets.js";

const RUNNING_SHOWN = 3;

export const replicas = {
  topic: "replicas",
  title: () => "Replicas",
  load: (_, signal) => get("replicas", {}, signal),
  every: (data) => (data.replicas.length ? 4 : null),
  render(data, page) {
    return [
      heading("Replicas", { note: data.replicas.length ? answer(data.replicas) : null }),
      data.replicas.length
        ? rows(data.replicas, page)
        : empty(
            "No worker is running.",
            "A worker appears here as soon as it joins: ",
            code("tenure worker service:app"),
            ". Until then, jobs wait and timers do not tick.",
          ),
    ];
  },
};

function answer(all) {
  const alive = all.filter(({ state }) => state === "alive");
  const versions = new Set(alive.map(({ version }) => version));
  const dead = all.length - alive.length;
  return [
    `${count(alive.length)} alive`,
    dead && `${count(dead)} without a beat, whose jobs the others recover`,
    versions.size > 1 ? `${versions.size} versions: a deploy is in progress or incomplete` : null,
  ]
    .filter(Boolean)
    .join(" · ");
}

function rows(all, page) {
  return table(
    "Replicas",
    [
      ["Replica", "wide lead"],
      ["State", "state-col"],
      ["Busy", "chart-cell"],
      ["Queues"],
      ["Timers", "number"],
      ["Running", "wide"],
      ["Memory", "number"],
    ],
    all.map((replica) => ({
      key: replica.id,
      cells: [
        h(
          "div.two",
          {},
          h(
            "span.name.clip",
            { title: `${replica.host}:${replica.pid}` },
            `${replica.host}:${replica.pid}`,
          ),
          h("span.muted", {}, replica.version && `${replica.version} · `, id(replica.id)),
        ),
        h("div.two", {}, badge(replica.state), beat(replica)),
        h(
          "div.age",
          {},
          h(
            "span",
            {},
            replica.slots === null
              ? count(busy(replica))
              : `${count(busy(replica))} of ${count(replica.slots)}`,
          ),
          meter(busy(replica), replica.slots ?? 0),
        ),
        replica.queues.length
          ? h(
              "span.tags",
              {},
              replica.queues.map((queue) =>
                h("a.tag", { href: link("jobs", { queue }), title: queue }, queue),
              ),
              replica.more_queues > 0 && `and ${count(replica.more_queues)} more`,
            )
          : h("span.muted", {}, "none"),
        h(
          "span",
          { title: replica.timers.join("\n") || null },
          count(replica.timers.length + (replica.more_timers ?? 0)),
        ),
        running(replica, page),
        memory(replica),
      ],
    })),
  );
}

// Runs of timers have slots of their own. Of very many running jobs the server names only some.
function busy({ held, running: jobs }) {
  return jobs.length < (held ?? 0) ? held : jobs.filter(({ task }) => !task.startsWith("@")).length;
}

function beat({ beat_ago: ago, joined, state }) {
  const seconds = Math.round(ago);
  return [
    h("span.muted", {}, `beat ${seconds ? `${duration(seconds)} ago` : "now"}`),
    state === "alive" && joined && h("span.muted", {}, "joined ", time(joined)),
  ];
}

function running({ id: key, running: jobs }, page) {
  const isWide = page.memory[key];
  const shown = isWide ? jobs : jobs.slice(0, RUNNING_SHOWN);
  return h(
    "div.two",
    {},
    shown.map((job) => h("a.clip", { href: link("jobs", {}, job.id), title: job.task }, job.task)),
    jobs.length > RUNNING_SHOWN &&
      h(
        "button.linklike",
        {
          type: "button",
          onclick: () => {
            page.memory[key] = !isWide;
            page.redraw();
          },
        },
        isWide ? "Show fewer" : `and ${count(jobs.length - RUNNING_SHOWN)} more`,
      ),
    !jobs.length && h("span.muted", {}, "nothing"),
  );
}

function memory({ memory: size }) {
  return size === null || size === undefined ? h("span.muted.dash", {}, "–") : bytes(size);
}
