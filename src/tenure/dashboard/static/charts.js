// Charts as inline SVG: few lines, labels beside the marks, zero-based.

import { h, s } from "./dom.js";
import { between, count, duration, exact, list, moment, plural, summary } from "./format.js";
import { shape } from "./icons.js";

const FULL = 100;

/** Ended attempts per minute of the last hour: succeeded below, failed on top, retried as a tick. */
export function rates({ minutes, succeeded, failed, retried }) {
  const totals = minutes.map(
    (_, index) => succeeded[index] + failed[index] + (retried?.[index] ?? 0),
  );
  const top = niceTop(Math.max(1, ...totals));
  const step = FULL / minutes.length;
  const bars = minutes.map((minute, index) => {
    let y = FULL;
    const bar = (value, kind) => {
      const height = value ? Math.max(1.5, (value / top) * FULL) : 0;
      y -= height;
      return value
        ? s(`rect.${kind}`, { x: index * step + step * 0.12, y, width: step * 0.76, height })
        : null;
    };
    const words = [
      plural(succeeded[index], "attempt").replace("attempt", "succeeded attempt"),
      failed[index] && `${count(failed[index])} failed for good`,
      retried?.[index] && `${count(retried[index])} to be retried`,
    ];
    return s(
      "g",
      {},
      s("rect.hover", { x: index * step, y: 0, width: step, height: FULL }),
      bar(succeeded[index], "ok"),
      bar(retried?.[index] ?? 0, "again"),
      bar(failed[index], "bad"),
      s(
        "title",
        {},
        `${moment(minute).split(" ").at(-1).slice(0, 5)}: ${list(words.filter(Boolean))}`,
      ),
    );
  });
  const line = (y) => s("line.grid", { x1: 0, x2: FULL, y1: y, y2: y });
  return h(
    "div.chart",
    {},
    h(
      "div.chart-area",
      {},
      h("span.axis-top", {}, `${count(top)} / min`),
      h("span.axis-middle", {}, count(top / 2)),
      s(
        "svg",
        {
          viewBox: `0 0 ${FULL} ${FULL}`,
          preserveAspectRatio: "none",
          role: "img",
          "aria-label": ratesLabel(succeeded, failed, retried),
        },
        line(0.3),
        line(FULL / 2),
        bars,
        s("line.base", { x1: 0, x2: FULL, y1: FULL, y2: FULL }),
      ),
    ),
    h(
      "div.chart-axis",
      { "aria-hidden": "true" },
      h("span", {}, "60 min ago"),
      h("span", {}, "30 min ago"),
      h("span", {}, "now"),
    ),
  );
}

function ratesLabel(succeeded, failed, retried) {
  return `Attempts of the last hour: ${count(sum(succeeded))} succeeded, ${count(sum(failed))} failed for good, ${count(sum(retried ?? []))} to be retried`;
}

export function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}

function niceTop(value) {
  const scale = 10 ** Math.floor(Math.log10(value));
  const top = [1, 2, 4, 5, 10].find((factor) => factor * scale >= value) * scale;
  return top === 1 ? 2 : top;
}

/** A bar that shows `value` of `limit`; the words stand beside it. */
export function meter(value, limit, { kind = "accent", label = null } = {}) {
  const share = limit > 0 ? Math.min(FULL, (value / limit) * FULL) : 0;
  return s(
    "svg.meter",
    {
      viewBox: `0 0 ${FULL} 6`,
      preserveAspectRatio: "none",
      role: label ? "img" : null,
      "aria-label": label,
      "aria-hidden": label ? null : "true",
    },
    s("rect.track", { x: 0, y: 0, width: FULL, height: 6 }),
    s("rect", { class: kind, x: 0, y: 0, width: value > 0 ? Math.max(share, 1) : 0, height: 6 }),
  );
}

/** The places of a lock or semaphore: filled squares are held. */
export function slots(held, limit) {
  const label = `${held} of ${limit} held`;
  if (limit > 40) return h("span.slots", {}, meter(held, limit, { label }));
  return h(
    "span.slots",
    { role: "img", "aria-label": label, title: label },
    Array.from({ length: limit }, (_, index) => h("i", { class: index < held ? "held" : null })),
  );
}

const STRIP = {
  succeeded: ["ok", 3, 15],
  ran: ["ran", 3, 15],
  failed: ["bad", 0, 18],
  running: ["now", 3, 15],
  waiting: ["wait", 3, 15],
  cancelled: ["off", 8, 10],
  skipped: ["skip", 11, 7],
  missed: ["miss", 14, 4],
};

/** The last outcomes of a timer, oldest first. Heights differ, so that colour is not needed. */
export function strip(history, tz, { room, isRight = false }) {
  const width = 7;
  const ticks = history.slice(0, room).reverse();
  const first = isRight ? room - ticks.length : 0;
  const marks = ticks.map((tick, index) =>
    mark(tick.outcome, (first + index) * width, tickText(tick, tz)),
  );
  return s(
    "svg.strip",
    {
      viewBox: `0 0 ${room * width} 18`,
      role: "img",
      "aria-label": stripText(history.slice(0, room)),
    },
    marks,
  );
}

function stripText(history) {
  if (!history.length) return "no ticks yet";
  const outcomes = new Map();
  for (const { outcome, ticks } of history)
    outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + ticks);
  return [...outcomes].map(([outcome, number]) => `${number} ${outcome}`).join(", ");
}

/** The shapes of a strip with their words and numbers. */
export function stripKey(history) {
  const outcomes = new Map();
  for (const { outcome, ticks } of history)
    outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + ticks);
  return [...outcomes].map(([outcome, number]) =>
    h(
      "span.strip-key",
      {},
      s("svg.strip", { viewBox: "0 0 7 18", "aria-hidden": "true" }, mark(outcome, 0)),
      `${count(number)} ${outcome}`,
    ),
  );
}

function mark(outcome, x, title = null) {
  const [kind, y, height] = STRIP[outcome] ?? STRIP.ran;
  const cross =
    kind === "bad" && s("path.cross", { d: `M${x + 1.4} 7l3.2 3.2M${x + 4.6} 7l-3.2 3.2` });
  return s(
    "g",
    { class: kind },
    s("rect", { x: x + 0.5, y: y + 0.5, width: 5, height: height - 1, rx: 1 }),
    cross,
    title && s("title", {}, title),
  );
}

function tickText(tick, tz) {
  const head = `${moment(tick.nominal, tz)}: ${tick.outcome}${tick.reason ? ` (${tick.reason})` : ""}`;
  const number = tick.ticks > 1 ? `, ${tick.ticks} ticks` : "";
  const took =
    tick.started && tick.finished ? `, ${duration(between(tick.started, tick.finished))}` : "";
  return head + number + took + (tick.error ? `\n${summary(tick.error)}` : "");
}

function ran({ run, started, ended }) {
  return run ?? Math.round(between(started, ended));
}

/** The attempts of a job on one axis of time: hatched while it waited, solid while it ran. */
export function timeline(job) {
  const attempts = job.attempts;
  const begin = Date.parse(job.created);
  const ends = attempts.map((attempt) =>
    attempt.ended ? Date.parse(attempt.ended) : begin + 1000 * between(job.created, null),
  );
  const end = Math.max(begin + 1, ...ends);
  const x = (instant) => ((Math.min(Math.max(instant, begin), end) - begin) / (end - begin)) * FULL;
  const rows = attempts.map((attempt, index) => {
    const start = Date.parse(attempt.started);
    const from =
      attempt.wait === null || attempt.wait === undefined
        ? start
        : Math.max(begin, start - attempt.wait * 1000);
    const width = Math.max(0.6, x(ends[index]) - x(start));
    const left = Math.min(x(start), FULL - width);
    const text = `Attempt ${attempt.attempt}: waited ${duration(attempt.wait)}, ran ${duration(ran(attempt))}, ${attempt.outcome}`;
    return h(
      "li.lane",
      { "data-key": String(attempt.attempt) },
      h("span.lane-name", {}, `Attempt ${attempt.attempt}`),
      s(
        "svg.lane-chart",
        { viewBox: `0 0 ${FULL} 16`, preserveAspectRatio: "none", role: "img", "aria-label": text },
        s("line.base", { x1: 0, x2: FULL, y1: 8, y2: 8 }),
        s("rect.wait", { x: x(from), y: 5, width: Math.max(0, left - x(from)), height: 6 }),
        s("rect", {
          class: `run is-${attempt.outcome.replace(" ", "-")}`,
          x: left,
          y: 1,
          width,
          height: 14,
        }),
        s("title", {}, `${text}\n${exact(attempt.started)}`),
      ),
      h(
        "span.lane-outcome",
        { class: `is-${attempt.outcome.replace(" ", "-")}` },
        shape(attempt.outcome),
        attempt.outcome,
      ),
      h("span.lane-times", {}, `waited ${duration(attempt.wait)} · ran ${duration(ran(attempt))}`),
      h("span.lane-where", { title: attempt.replica }, attempt.where || attempt.replica.slice(0, 8)),
    );
  });
  return h(
    "div.timeline",
    {},
    h("ol.lanes", {}, rows),
    h(
      "div.lane-axis",
      { "aria-hidden": "true" },
      h("span", {}, "created"),
      h("span", {}, `after ${duration((end - begin) / 1000)}`),
    ),
  );
}
