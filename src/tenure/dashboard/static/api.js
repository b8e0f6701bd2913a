// Talks to the server: reads, actions, and the stream that says what has changed.

import { setNow } from "./format.js";
import { segment } from "./router.js";

const GAP = 5000;

/** An answer that is no success, with text that can be shown. */
export class ApiError extends Error {
  constructor(status, title, detail) {
    super(detail ? `${title}. ${detail}` : title);
    Object.assign(this, { status, title, detail });
  }
}

export const session = {
  app: "",
  version: "",
  store: {},
  viewer: null,
  token: "",
  refresh: 2,
  trace_link: false,
  may: { act: false, reveal: false, owners: false },
};

export async function openSession() {
  Object.assign(session, await get("session"));
}

/** Read `api/<path>`; entries of `query` without a value are left out. */
export async function get(path, query = {}, signal = undefined) {
  const search = new URLSearchParams(Object.entries(query).filter(([, value]) => value));
  const text = search.toString();
  return request(`api/${path}${text ? `?${text}` : ""}`, { signal });
}

/** Run an action. */
export async function post(path, body = {}) {
  const { viewer } = session;
  try {
    return await send(path, body);
  } catch (error) {
    if (!error.isStale) throw error;
    // Another page of this browser may have got the key. The viewer must still be the same.
    await openSession();
    if (session.viewer !== viewer) throw error;
    return send(path, body);
  }
}

function send(path, body) {
  return request(`api/${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Tenure-Token": session.token },
    body: JSON.stringify(body),
  });
}

/** A path of the API whose parts may contain any character. */
export function path(...parts) {
  return parts.map(segment).join("/");
}

async function request(address, options) {
  let response;
  try {
    response = await fetch(new URL(address, document.baseURI), {
      credentials: "same-origin",
      ...options,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(
      0,
      "The dashboard's server does not answer",
      "Check that it runs; the page tries again.",
    );
  }
  const body = await response.json().catch(() => null);
  if (!response.ok) {
    const title = body?.title || `The server answered ${response.status}`;
    const refusal = new ApiError(response.status, title, body?.detail || advice(response.status));
    refusal.isStale = Boolean(body?.is_stale_token);
    throw refusal;
  }
  setNow(body?.now);
  return body;
}

function advice(status) {
  if (status === 401) return "Sign in, then reload the page.";
  if (status === 403) return "You may not do this. Reload the page if you have just signed in.";
  return "";
}

/**
 * Follow the stream of changes: `onTick({topics, trouble})` for each of them, `onState(isLive)` when
 * the stream comes or goes. Returns a function that chooses the topic to follow.
 */
export function follow(onTick, onState) {
  let topic = null;
  let source = null;
  let reopening = null;
  let missing = null; // the server ends streams now and then; only a longer gap is worth a word

  function open() {
    close();
    if (!topic || document.hidden) return;
    const opened = new EventSource(new URL(`api/stream?topics=${topic}`, document.baseURI));
    source = opened;
    source.addEventListener("open", () => {
      clearTimeout(missing);
      missing = null;
      onState(true);
    });
    source.addEventListener("tick", (event) => onTick(JSON.parse(event.data)));
    source.addEventListener("error", () => {
      missing ??= setTimeout(() => onState(false), GAP);
      // EventSource gives up after an answer that is no stream, for example 503.
      if (opened.readyState === EventSource.CLOSED && source === opened)
        reopening = setTimeout(open, GAP);
    });
  }

  function close() {
    clearTimeout(reopening);
    source?.close();
    source = null;
  }

  // A hidden page costs the store nothing.
  document.addEventListener("visibilitychange", open);
  return (chosen) => {
    if (chosen === topic) return;
    topic = chosen;
    open();
  };
}
