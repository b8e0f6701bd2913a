// Starts the dashboard: the frame around the pages, and the loop that keeps a page fresh.

import { follow, get, openSession, session } from "./api.js";
import { h, update } from "./dom.js";
import { icon, shape } from "./icons.js";
import { showKeys, startKeys } from "./keys.js";
import { now } from "./format.js";
import { announce, banner } from "./notices.js";
import { link, start } from "./router.js";
import { searchField } from "./search.js";
import { themeSwitch } from "./theme.js";
import { empty, since, startTimes } from "./widgets.js";
import { events } from "./views/events.js";
import { job } from "./views/job.js";
import { jobs } from "./views/jobs.js";
import { locks } from "./views/locks.js";
import { overview } from "./views/overview.js";
import { replicas } from "./views/replicas.js";
import { timer } from "./views/timer.js";
import { timers } from "./views/timers.js";

const NAV = [
  ["overview", "Overview"],
  ["jobs", "Jobs"],
  ["timers", "Timers"],
  ["locks", "Locks"],
  ["replicas", "Replicas"],
  ["events", "Events"],
];
const RETRY_AFTER = 3000;
const SLOW = 250; // an answer that takes longer than this gets "Loading"

const main = document.getElementById("main");
const search = searchField();
let page = null;
let choose = () => {};
const versions = {};
let isLive = false;
let attention = 0;
let trouble = null;

// A view is {topic, title(route), load(route, signal, page), render(data, page), every(data)}.
// `page.memory` is the view's own, for example the rows that it holds back, and lasts until the
// reader goes elsewhere. `every` says after how many seconds the page asks again although nothing
// has changed that the stream counts: beats, leases and progress are renewed all the time.
const missing = {
  topic: null,
  title: () => "Page not found",
  load: async () => ({}),
  render: () => empty("This page does not exist.", h("a", { href: "./" }, "Go to the overview")),
};
const VIEWS = { overview, jobs, timers, locks, replicas, events, missing };
const DETAILS = { jobs: job, timers: timer };

function viewOf({ view, item }) {
  if (item === null) return VIEWS[view];
  return DETAILS[view] ?? missing;
}

function show(route) {
  const before = page;
  before?.controller.abort();
  clearTimeout(before?.timer);
  const view = viewOf(route);
  const isSame = before?.view === view && before.route.item === route.item;
  page = {
    view,
    route,
    memory: {},
    data: null,
    at: null,
    controller: new AbortController(),
    timer: null,
    isSame,
    isFirst: !before,
  };
  page.refresh = () => refresh(page);
  page.redraw = () => draw(page);
  banner(null);
  drawFrame();
  choose(view.topic);
  const shown = page;
  page.timer = setTimeout(() => {
    if (page === shown && !page.data && !isSame) update(main, h("p.loading", {}, "Loading…"));
  }, SLOW);
  void load(page);
}

async function load(shown) {
  shown.isLoading = true;
  shown.isDirty = false;
  try {
    const data = await shown.view.load(shown.route, shown.controller.signal, shown);
    if (page !== shown) return;
    const isFirst = shown.data === null;
    Object.assign(shown, { data, at: new Date(now()).toISOString() });
    clearTimeout(shown.timer);
    banner(null);
    draw(shown);
    if (isFirst) arrive(shown);
    // What changes before the stream begins to look would be missed: ask once more after that.
    const pause =
      shown.isDirty || !isLive || isFirst
        ? interval()
        : 1000 * (shown.view.every?.(data) ?? Infinity);
    if (isFinite(pause)) shown.timer = setTimeout(() => refresh(shown), pause);
  } catch (error) {
    if (page !== shown || error.name === "AbortError") return;
    if (!error.title) console.error(error);
    fail(shown, error);
  } finally {
    shown.isLoading = false;
  }
}

// Without the stream the page asks by itself, more rarely.
function interval() {
  return 1000 * (isLive ? session.refresh : 2 * session.refresh + 1);
}

function refresh(shown) {
  if (page !== shown || shown.isLeaving || document.hidden) return;
  clearTimeout(shown.timer);
  if (!shown.isLoading) void load(shown);
  else shown.isDirty = true;
}

function draw(shown) {
  if (page !== shown || !shown.data) return;
  update(main, shown.view.render(shown.data, shown));
  if (shown.view === overview)
    attention = shown.data.attention.filter(({ level }) => level !== "note").length;
  drawFrame();
}

function arrive(shown) {
  if (shown.isSame) return;
  window.scrollTo(0, history.state?.scroll ?? 0);
  // The first page of a visit leaves the focus at the top, where the skip link is.
  if (!shown.isFirst && document.activeElement !== document.getElementById("search"))
    main.focus({ preventScroll: true });
  announce(shown.view.title(shown.route));
}

function fail(shown, error) {
  clearTimeout(shown.timer);
  const isFinal = error.status >= 400 && error.status < 500 && error.status !== 429;
  if (isFinal)
    update(
      main,
      empty(
        error.title,
        error.detail,
        " ",
        h("a", { href: link(shown.route.view) }, `Back to ${shown.route.view}`),
      ),
    );
  else if (shown.data) banner(error, since(shown.at));
  else {
    banner(error);
    update(main, empty("There is nothing to show yet.", "The page tries again by itself."));
  }
  if (!isFinal) shown.timer = setTimeout(() => refresh(shown), RETRY_AFTER);
  drawFrame();
}

function drawFrame() {
  const { route, view } = page;
  const title = view.title(route);
  document.title = [
    attention && view === overview ? `(${attention}) ${title}` : title,
    session.app,
    "Tenure",
  ]
    .filter(Boolean)
    .join(" · ");
  update(document.getElementById("side"), side(route));
  update(
    document.getElementById("top"),
    crumbs(route, title),
    h(
      "div.tools",
      {},
      h("div.search-place", { "data-key": "search", "data-keep": true }),
      liveness(),
      themeSwitch(drawFrame),
      h(
        "button.plain.help",
        { type: "button", title: "Keys (?)", "aria-label": "List the keys", onclick: showKeys },
        "?",
      ),
    ),
  );
  const place = document.querySelector("#top [data-key=search]");
  if (search.parentNode !== place) place.append(search);
}

function liveness() {
  const { classList } = document.body;
  if (!page.view.topic) return null;
  if (classList.contains("is-stale") || classList.contains("is-away"))
    return h(
      "span.live",
      { title: "No fresh data; the page tries again" },
      shape("warning"),
      classList.contains("is-stale") ? "Old data" : "No data",
    );
  const title = isLive
    ? "The page follows changes as they happen"
    : "The stream of changes is interrupted; the page asks every few seconds";
  return h(
    "span.live",
    { class: isLive ? "on" : null, title },
    shape(isLive ? "alive" : "expired"),
    isLive ? "Live" : "Polling",
  );
}

function side(route) {
  const { store } = session;
  return [
    h(
      "a.brand",
      { href: "./", "aria-label": "Tenure, overview" },
      h("img", { src: "assets/icon.svg", alt: "", width: 24, height: 24 }),
      h("span", {}, "Tenure"),
    ),
    h(
      "ul.nav",
      {},
      NAV.map(([name, label]) =>
        h(
          "li",
          {},
          h(
            "a",
            { href: link(name), "aria-current": route.view === name ? "page" : null },
            icon(name),
            h("span", {}, label),
            name === "overview" &&
              attention > 0 &&
              h("span.count", { "aria-label": `${attention} need attention` }, attention),
          ),
        ),
      ),
    ),
    h(
      "div.about",
      {},
      h(
        "p",
        { title: store.url ?? null },
        [store.kind, store.namespace && `namespace ${store.namespace}`].filter(Boolean).join(", "),
      ),
      store.grade &&
        h(
          "p",
          { title: `What the store survives. ${store.grade}: ${store.grade_text}` },
          `grade ${store.grade}`,
        ),
      h(
        "p",
        {},
        session.viewer ? `signed in as ${session.viewer}` : null,
        !session.may.act && h("span", {}, session.viewer ? ", read-only" : "read-only"),
      ),
      h("p", {}, session.version && `Tenure ${session.version}`),
    ),
  ];
}

function crumbs(route, title) {
  const [, label] = NAV.find(([name]) => name === route.view) ?? [null, title];
  return h(
    "nav.crumbs",
    { "aria-label": "Breadcrumbs" },
    h(
      "ol",
      {},
      session.app && h("li", {}, h("a", { href: "./", title: session.app }, session.app)),
      route.item !== null &&
        route.view !== "missing" &&
        h("li", {}, h("a", { href: link(route.view) }, label)),
      h(
        "li",
        {},
        h("span", { "aria-current": "page", title }, route.item === null ? label : title),
      ),
    ),
  );
}

function tick({ topics, trouble: text = null }) {
  const { topic } = page.view;
  const isNew =
    (versions[topic] !== undefined && topics[topic] !== versions[topic]) || text !== trouble;
  Object.assign(versions, topics);
  trouble = text;
  if (isNew) refresh(page);
}

async function begin() {
  try {
    await openSession();
  } catch (error) {
    banner(error);
    setTimeout(begin, RETRY_AFTER);
    return;
  }
  banner(null);
  startTimes();
  startKeys();
  choose = follow(tick, (state) => {
    if (state === isLive) return;
    isLive = state;
    drawFrame();
    if (!state) page.refresh();
  });
  start(show);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) page.refresh();
  });
  if (page.view !== overview) {
    const data = await get("overview").catch(() => null);
    attention = (data?.attention ?? []).filter(({ level }) => level !== "note").length;
    drawFrame();
  }
}

void begin();
