// Locks and semaphores: who holds them, how long the lease lasts, and who waits in line.

import { get, post, session } from "../api.js";
import { meter, slots } from "../charts.js";
import { confirm } from "../dialogs.js";
import { h } from "../dom.js";
import { duration, list, now, plural } from "../format.js";
import { go, link } from "../router.js";
import {
  button,
  clip,
  code,
  countdown,
  empty,
  heading,
  id,
  long,
  since,
  table,
} from "../widgets.js";

const WAITERS_SHOWN = 5;
const HOLDERS_SHOWN = 10;

export const locks = {
  topic: "locks",
  title: () => "Locks",
  load: ({ query }, signal) => get("locks", { prefix: query.prefix }, signal),
  every: (data) => (data.locks.length ? 4 : null),
  render(data, page) {
    const prefix = page.route.query.prefix ?? "";
    const at = data.now ? Date.parse(data.now) : now();
    return [
      heading("Locks", { note: data.locks.length ? answer(data) : null }),
      filter(prefix),
      data.is_capped &&
        h(
          "p.hint",
          {},
          `Only the first ${plural(data.locks.length, "lock")} are shown. Enter how the name begins.`,
        ),
      data.locks.length ? data.locks.map((lock) => card(lock, at, page)) : nothing(prefix),
    ];
  },
};

function answer({ locks: all, is_capped: isCapped }) {
  const waiting = all.reduce((total, lock) => total + lock.waiters.length, 0);
  return [
    `${plural(all.length, "name", isCapped)} held or waited for`,
    waiting ? `${plural(waiting, "caller")} waiting in line` : "no caller waits",
  ].join(" · ");
}

function filter(prefix) {
  const submit = (event) => {
    event.preventDefault();
    go(link("locks", { prefix: new FormData(event.currentTarget).get("prefix").trim() }));
  };
  return h(
    "form.filters",
    { onsubmit: submit, "aria-label": "Filters" },
    h(
      "label.field",
      { class: prefix ? "set" : null },
      h("span", {}, "Name begins with"),
      h("input", {
        type: "search",
        name: "prefix",
        value: prefix,
        autocomplete: "off",
        spellcheck: "false",
        onsearch: (event) => event.currentTarget.form.requestSubmit(),
      }),
    ),
    h(
      "div.filter-actions",
      {},
      h("button.button", { type: "submit" }, "Filter"),
      prefix && h("a.button.quiet", { href: link("locks") }, "Clear"),
    ),
  );
}

function nothing(prefix) {
  if (prefix)
    return empty(
      `No lock whose name begins with “${prefix}” is held or waited for.`,
      h("a", { href: link("locks") }, "Show all locks"),
    );
  return empty(
    "No lock is held.",
    "Locks and semaphores appear here while a process holds them or waits for them: ",
    code('async with app.lock("invoice:42"):'),
  );
}

function card(lock, at, page) {
  const isSemaphore = lock.limit !== null && lock.limit > 1;
  const { memory } = page;
  const isWide = memory[lock.name];
  const holders = isWide ? lock.holders : lock.holders.slice(0, HOLDERS_SHOWN);
  const hidden = [
    [lock.holders.length - holders.length, "holder"],
    [isWide ? 0 : Math.max(0, lock.waiters.length - WAITERS_SHOWN), "caller"],
  ].filter(([number]) => number > 0);
  return h(
    "article.lock",
    { "data-key": lock.name },
    h(
      "div.lock-head",
      {},
      h("h2.clip", { title: lock.name }, long(lock.name)),
      h(
        "span.muted",
        {},
        isSemaphore
          ? `semaphore, ${lock.holders.length} of ${lock.limit} held`
          : lock.holders.length
            ? "lock, held"
            : "lock, free",
      ),
      isSemaphore && slots(lock.holders.length, lock.limit),
    ),
    lock.holders.length > 0 &&
      table(
        `Holders of ${lock.name}`,
        [
          ["Holder", "wide lead"],
          ["Held for", "number"],
          ["Lease expires in", "chart-cell"],
          ["Fence", "number"],
          ["Note", "wide"],
          ["", "action-cell"],
        ],
        holders.map((holder) => ({
          key: holder.holder,
          cells: [
            h("div.two", {}, clip(holder.where || "unknown process"), id(holder.holder)),
            since(new Date(at - holder.held_for * 1000).toISOString()),
            lease(holder, at),
            String(holder.fence),
            note(holder.meta) ? clip(note(holder.meta)) : h("span.muted.dash", {}, "–"),
            session.may.act &&
              button("Release…", () => release(lock, holder, page), {
                small: true,
                kind: "danger-quiet",
                "aria-label": `Release ${lock.name}, held by ${holder.where}`,
              }),
          ],
        })),
      ),
    lock.waiters.length > 0 && line(lock.waiters, at, isWide),
    (hidden.length > 0 || isWide) &&
      h(
        "div.more",
        {},
        button(
          isWide
            ? "Show fewer"
            : `Show ${list(hidden.map(([number, noun]) => plural(number, `more ${noun}`)))}`,
          () => {
            memory[lock.name] = !isWide;
            page.redraw();
          },
          { small: true },
        ),
      ),
  );
}

// What the caller has said about itself; host and process are shown already.
function note(meta) {
  return Object.entries(meta ?? {})
    .filter(([name]) => name !== "host" && name !== "pid")
    .map(([name, text]) => (name === "meta" ? text : `${name}: ${text}`))
    .join(", ");
}

function lease({ expires_in: left, ttl }, at) {
  const until = new Date(at + left * 1000).toISOString();
  return h(
    "div.age",
    {},
    countdown(until, "expired"),
    meter(Math.max(0, left), Math.max(ttl || left, left), {
      kind: left < (ttl || 0) / 4 ? "bad" : "accent",
    }),
  );
}

function line(waiters, at, isWide) {
  return h(
    "div.waiters",
    {},
    h("h3", {}, `${plural(waiters.length, "caller")} in line, first come first served`),
    h(
      "ol",
      {},
      (isWide ? waiters : waiters.slice(0, WAITERS_SHOWN)).map((waiter) =>
        h(
          "li",
          { "data-key": waiter.holder },
          h("span.clip", { title: waiter.where }, waiter.where || "unknown process"),
          h(
            "span.muted",
            {},
            "waits for ",
            since(new Date(at - waiter.waiting_for * 1000).toISOString()),
          ),
          note(waiter.meta) &&
            h("span.muted.clip", { title: note(waiter.meta) }, note(waiter.meta)),
        ),
      ),
    ),
  );
}

function release(lock, holder, page) {
  const next = lock.waiters[0];
  confirm({
    title: `Release ${lock.name}?`,
    label: "Release 1 holder",
    kind: "danger",
    text: [
      `${holder.where || "Its holder"} has held it for ${duration(holder.held_for)}, with fence ${holder.fence}. It loses the lock at once and is told so at its next renewal; until then it may go on working.`,
      next ? `The next in line, ${next.where}, gets it.` : "No caller waits for it.",
      "Release it only if you know that the holder is stuck or gone. Writes that check the fence stay safe.",
    ],
    run: async () => {
      const { released } = await post("locks/release", {
        name: lock.name,
        holder: holder.holder,
        fence: holder.fence,
      });
      return released
        ? `Released ${lock.name}.`
        : `Nothing was released: ${lock.name} has another holder by now.`;
    },
    done: page.refresh,
  });
}
