// Addresses of the pages. Filters are in the query, so that every view can be shared and the back
// button works. All addresses are relative to <base>, because the dashboard may be mounted anywhere.

const VIEWS = ["overview", "jobs", "timers", "locks", "replicas", "events"];

let changed = () => {};

/** Call `listener(route)` now and whenever the address changes. */
export function start(listener) {
  changed = () => listener(current());
  window.addEventListener("popstate", changed);
  document.addEventListener("click", follow);
  changed();
}

/** The route of the address: {view, item, query, path}. */
export function current() {
  const base = new URL(document.baseURI).pathname;
  const path = location.pathname.startsWith(base) ? location.pathname.slice(base.length) : "";
  const [head, ...rest] = path.split("/");
  const view = head === "" ? "overview" : head;
  return {
    view: VIEWS.includes(view) ? view : "missing",
    item: rest.length && rest[0] ? rest.map(decode).join("/") : null,
    query: Object.fromEntries(new URLSearchParams(location.search)),
    path,
  };
}

function decode(part) {
  try {
    return decodeURIComponent(part).replace(/^~(~*\.{1,2})$/, "$1");
  } catch {
    return part;
  }
}

/**
 * A name as one part of a path. Browsers and proxies drop parts that are "." and "..", encoded or
 * not, which leads to another address: so these have a "~" in front.
 */
export function segment(name) {
  return encodeURIComponent(name.replace(/^~*\.{1,2}$/, "~$&"));
}

/** The address of a view: link("jobs", {state: "failed"}) or link("jobs", {}, id). */
export function link(view, query = {}, item = null) {
  const search = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
  const path =
    view === "overview" ? "./" : view + (item === null ? "" : `/${segment(item)}`);
  return path + (search ? `?${search}` : "");
}

/** Show another address of the dashboard. */
export function go(address, { replace = false } = {}) {
  const url = new URL(address, document.baseURI);
  if (url.href === location.href) return;
  // The page that is left keeps where it was scrolled to, for the way back.
  if (!replace) history.replaceState({ scroll: window.scrollY }, "");
  history[replace ? "replaceState" : "pushState"](null, "", url);
  changed();
}

/** Whether an address leads to a page of the dashboard; what the server sends may be anything. */
export function isOwn(address) {
  try {
    return new URL(address, document.baseURI).href.startsWith(document.baseURI);
  } catch {
    return false;
  }
}

function follow(event) {
  const anchor = event.target.closest?.("a[href]");
  const isPlain =
    event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (
    !anchor ||
    !isPlain ||
    event.defaultPrevented ||
    anchor.target ||
    anchor.hasAttribute("download")
  )
    return;
  const href = anchor.getAttribute("href");
  if (href.startsWith("#")) {
    event.preventDefault(); // <base> would turn it into another address
    document.querySelector(href)?.focus();
    return;
  }
  if (!isOwn(href)) return;
  event.preventDefault();
  go(href);
}
