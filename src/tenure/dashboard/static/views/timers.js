// The list of timers and schedules: rule in words, next tick, last outcomes, state.

import { get, path, session } from "../api.js";
import { strip } from "../charts.js";
import { act, askPause } from "../dialogs.js";
import { h } from "../dom.js";
import { plural } from "../format.js";
import { shape } from "../icons.js";
import { link } from "../router.js";
import { badge, button, code, countdown, empty, heading, long, table, time } from "../widgets.js";

const STRIP_TICKS = 20;

export const timers = {
  topic: "timers",
  title: () => "Timers",
  load: (_, signal) => get("timers", {}, signal),
  render(data, page) {
    return [
      heading("Timers", {
        note: data.timers.length ? answer(data) : null,
        actions: freeze(data, page),
      }),
      data.paused &&
        h(
          "div.why.is-warning",
          {},
          shape("paused"),
          h(
            "div",
            {},
            h(
              "p.why-text",
              {},
              "All timers and schedules are frozen",
              data.paused.until ? [", until ", time(data.paused.until)] : " until they are resumed",
              data.paused.reason ? `: ${data.paused.reason}` : "",
              ".",
            ),
            h(
              "p.why-next",
              {},
              "Since ",
              time(data.paused.since),
              ". Ticks during this time are skipped.",
            ),
          ),
        ),
      data.timers.length
        ? [
            rows(data, page),
            data.is_capped &&
              h(
                "p.hint",
                {},
                `Only the first ${plural(data.timers.length, "timer")} are shown. The search finds the others by name.`,
              ),
          ]
        : empty(
            "No timer or schedule is declared.",
            "Declare one with ",
            code('@app.timer(every="60s")'),
            " and start a worker: the store learns of it then.",
          ),
    ];
  },
};

function answer({ timers: all }) {
  const paused = all.filter((timer) => timer.pause).length;
  const failing = all.filter((timer) => timer.history[0]?.outcome === "failed").length;
  return [
    plural(all.length, "timer"),
    paused && `${paused} paused`,
    failing ? `${failing} failed at the last tick` : "none failed at its last tick",
  ]
    .filter(Boolean)
    .join(" · ");
}

function freeze({ paused, timers: all }, page) {
  if (!session.may.act || !all.length) return null;
  if (paused)
    return button(
      "Resume all timers",
      () =>
        act(
          "timers/resume",
          {},
          "All timers tick again, except those with a pause of their own.",
          page.refresh,
        ),
      { kind: "primary" },
    );
  return button(
    "Freeze all timers…",
    () =>
      askPause({
        title: "Freeze all timers?",
        label: `Freeze ${plural(all.length, "timer")}`,
        address: "timers/pause",
        said: "All timers are frozen.",
        done: page.refresh,
        text: `No timer or schedule of this store ticks: ${plural(all.length, "timer")}. Ticks meanwhile are skipped. Runs that have begun continue.`,
      }),
    { kind: "danger-quiet" },
  );
}

function rows({ timers: all, paused }, page) {
  return table(
    "Timers",
    [
      ["Timer", "wide wider lead"],
      ["Next tick"],
      ["Last outcomes", "strip-cell"],
      ["State", "state-col"],
      ["", "action-cell"],
    ],
    all.map((timer) => ({
      key: timer.name,
      cells: [
        h(
          "div.two",
          {},
          h(
            "a.name.clip",
            { href: link("timers", {}, timer.name), title: timer.name },
            long(timer.name),
          ),
          h("span.muted.clip", { title: ruleText(timer) }, ruleText(timer)),
        ),
        timer.next.length && !timer.pause && !paused
          ? time(timer.next[0], { tz: timer.tz })
          : h("span.muted.dash", {}, "–"),
        timer.history.length
          ? strip(timer.history, timer.tz, { room: STRIP_TICKS })
          : h("span.muted", {}, "no ticks yet"),
        timerState(timer, paused),
        timerActions(timer, page, true),
      ],
    })),
  );
}

/** The rule in words, with its zone unless that is UTC or said already. */
export function ruleText({ rule, tz, kind }) {
  const zone = tz && tz !== "UTC" && !rule.includes(tz) ? ` (${tz})` : "";
  return `${kind === "schedule" ? "schedule · " : ""}${rule}${zone}`;
}

export function timerState(timer, isFrozen = false) {
  if (timer.renamed_to)
    return h(
      "div.two",
      {},
      badge("expired", "renamed"),
      h(
        "a.clip",
        { href: link("timers", {}, timer.renamed_to), title: timer.renamed_to },
        `to ${timer.renamed_to}`,
      ),
    );
  if (timer.pause)
    return h(
      "div.two",
      {},
      badge("paused"),
      h(
        "span.muted.clip",
        { title: timer.pause.reason || null },
        timer.pause.until ? [countdown(timer.pause.until, "ends now"), " left"] : "until resumed",
      ),
    );
  if (isFrozen && !timer.running) return badge("paused", "frozen");
  if (!timer.is_declared) return badge("expired", "not declared");
  if (timer.running)
    return badge("running", timer.running > 1 ? `${timer.running} running` : "running");
  return badge("waiting", "waiting for its tick");
}

export function timerActions(timer, page, small = false) {
  if (!session.may.act || timer.renamed_to) return null;
  const address = path("timers", timer.name);
  return h(
    "div.actions",
    {},
    timer.pause
      ? button(
          "Resume",
          () => act(`${address}/resume`, {}, `Timer ${timer.name} ticks again.`, page.refresh),
          { small, "aria-label": `Resume ${timer.name}` },
        )
      : button(
          "Pause…",
          () =>
            askPause({
              title: `Pause timer ${timer.name}?`,
              address: `${address}/pause`,
              said: `Timer ${timer.name} is paused.`,
              done: page.refresh,
              text: "Ticks during the pause are skipped. A run that has begun continues.",
            }),
          { small, "aria-label": `Pause ${timer.name}` },
        ),
    button(
      "Trigger",
      () =>
        act(
          `${address}/trigger`,
          {},
          ({ job }) => ({
            text: `Triggered ${timer.name}.`,
            link: job && h("a", { href: link("jobs", {}, job.id ?? job) }, "Show the job"),
          }),
          page.refresh,
        ),
      {
        small,
        "aria-label": `Trigger ${timer.name}`,
        title: "Runs it once, now, also while it is paused",
      },
    ),
  );
}
