// One timer: why it did or did not run, the coming ticks in two zones, and the outcome of each past one.

import { get, path } from "../api.js";
import { strip, stripKey } from "../charts.js";
import { h } from "../dom.js";
import { between, count, duration, moment, summary, viewerZone } from "../format.js";
import { link } from "../router.js";
import {
  badge,
  button,
  empty,
  facts,
  heading,
  instant,
  section,
  table,
  time,
  why,
} from "../widgets.js";
import { ruleText, timerActions, timerState } from "./timers.js";

const STRIP_TICKS = 100;
const HISTORY_SHOWN = 20;
const REASONS = {
  overlap: "the run before was unfinished",
  limit: "as many runs as its limit allows were unfinished",
  per_replica: "each replica had as many runs as it may have",
  blackout: "inside a blackout",
  paused: "it was paused",
  late: "no worker was there in time, or the store did not answer",
};

export const timer = {
  topic: "timers",
  title: ({ item }) => item,
  load: ({ item }, signal) => get(path("timers", item), {}, signal),
  render(data, page) {
    return [
      heading(data.name, {
        state: timerState(data, data.paused),
        note: ruleText(data),
        actions: timerActions(data, page),
      }),
      why(data.why, data.is_declared && !data.ahead ? "note" : "warning"),
      section(
        "Last outcomes",
        { note: stripKey(data.history) },
        data.history.length
          ? h(
              "div.strip-frame",
              { tabindex: "0", role: "region", "aria-label": "Last outcomes" },
              strip(data.history, data.tz, { room: STRIP_TICKS, isRight: true }),
              h(
                "div.lane-axis",
                { "aria-hidden": "true" },
                h("span", {}, "older"),
                h("span", {}, "newest"),
              ),
            )
          : empty("It has not ticked yet.", "Each tick appears here with its outcome."),
      ),
      h(
        "div.columns",
        {},
        section("Next ticks", {}, next(data)),
        section(
          "Facts",
          {},
          facts([
            ["Kind", data.kind],
            data.task?.startsWith("@")
              ? ["Runs", h("a", { href: link("jobs", { task: data.task }) }, "Show its runs")]
              : [
                  "Task",
                  data.task && h("a", { href: link("jobs", { task: data.task }) }, data.task),
                ],
            ["Time zone", data.tz || "UTC"],
            ["Previous tick", instant(data.previous)],
            ["Running", String(data.running)],
            ["Paused since", data.pause && instant(data.pause.since)],
            [
              "Pause ends",
              data.pause && (data.pause.until ? instant(data.pause.until) : "when it is resumed"),
            ],
            ["Reason of the pause", data.pause?.reason],
          ]),
        ),
      ),
      data.history.length > 0 &&
        section(
          "History",
          { note: `the last ${count(data.history.length)} decisions` },
          history(data, page),
        ),
    ];
  },
};

function next({ next: instants, tz, pause, paused, is_declared: isDeclared }) {
  if (!instants.length)
    return empty(
      "No tick is planned.",
      isDeclared
        ? 'With after="completion" the next one is known when the run has ended.'
        : "No live replica declares this timer.",
    );
  const mine = viewerZone();
  const zone = tz || "UTC";
  const columns = mine === zone ? [["In"], [mine]] : [["In"], [`Yours, ${mine}`], [zone]];
  return [
    (pause || paused) && h("p.hint", {}, "Paused: ticks before the end of the pause are skipped."),
    table(
      "Next ticks",
      columns,
      instants.map((instant) => ({
        key: instant,
        cells: [time(instant, { tz: zone }), moment(instant), moment(instant, zone)].slice(
          0,
          columns.length,
        ),
      })),
      { cards: false },
    ),
  ];
}

function error(tag, text, href = null) {
  return h(`${tag}.error-line.clip`, { title: text, href }, summary(text));
}

function history({ history: all, tz }, page) {
  const ticks = page.memory.isWide ? all : all.slice(0, HISTORY_SHOWN);
  return [
    table(
      "History",
      [
        [`Tick, ${tz || "UTC"}`],
        ["Outcome"],
        ["Started late by", "number hide-phone"],
        ["Took", "number"],
        ["Remarks", "wide wider"],
      ],
      ticks.map((tick) => ({
        key: `${tick.nominal} ${tick.job ?? ""} ${tick.outcome === "running" ? "" : tick.reason}`,
        cells: [
          h(
            "div.two",
            {},
            h("span", {}, moment(tick.nominal, tz)),
            h("span.muted", {}, time(tick.nominal, { tz })),
          ),
          [
            badge(tick.outcome),
            tick.ticks > 1 && h("span.muted", {}, ` ${count(tick.ticks)} ticks`),
          ],
          tick.started ? duration(between(tick.nominal, tick.started)) : "–",
          tick.started && tick.finished ? duration(between(tick.started, tick.finished)) : "–",
          h(
            "div.two",
            {},
            tick.reason && !tick.error && h("span", {}, REASONS[tick.reason] ?? tick.reason),
            tick.error && !tick.job && error("span", tick.error),
            tick.error && tick.job && error("a", tick.error, link("jobs", {}, tick.job)),
            tick.job &&
              (!tick.error || tick.attempts > 1) &&
              h(
                "span",
                {},
                !tick.error && h("a", { href: link("jobs", {}, tick.job) }, "Show the job"),
                tick.attempts > 1 && h("span.muted", {}, ` ${tick.attempts} attempts`),
              ),
          ),
        ],
      })),
    ),
    all.length > ticks.length &&
      h(
        "div.more",
        {},
        button(`Show all ${count(all.length)}`, () => {
          page.memory.isWide = true;
          page.redraw();
        }),
      ),
  ];
}
