// Jobs that a viewer has chosen one by one, and what can be done with them.

import { post, session } from "../api.js";
import { confirm } from "../dialogs.js";
import { h } from "../dom.js";
import { count, plural } from "../format.js";
import { button } from "../widgets.js";
import { ACTIONS } from "./bulk.js";

const AT_ONCE = 200; // as many ids as the server takes

/** Whether jobs can be chosen at all. */
export function mayChoose() {
  return session.may.act;
}

/** The box that chooses a job. */
export function box(job, page) {
  return checkbox(`Choose ${job.task} ${job.id.slice(-8)}`, chosenIn(page).has(job.id), (isOn) => {
    if (isOn) chosenIn(page).add(job.id);
    else chosenIn(page).delete(job.id);
    page.redraw();
  });
}

/** The box that chooses all rows that are shown. */
export function boxOfAll(rows, page) {
  const chosen = chosenIn(page);
  const isOn = rows.length > 0 && rows.every(({ job }) => chosen.has(job.id));
  return checkbox("Choose all that are shown", isOn, (turnedOn) => {
    page.memory.chosen = new Set(turnedOn ? rows.map(({ job }) => job.id) : []);
    page.redraw();
  });
}

/** How many are chosen, and what can be done with them. */
export function choice(rows, page) {
  const jobs = rows.map(({ job }) => job).filter(({ id }) => chosenIn(page).has(id));
  if (!jobs.length) return null;
  return h(
    "div.choice",
    { role: "region", "aria-label": "Chosen jobs" },
    h("strong", {}, `${count(jobs.length)} chosen`),
    Object.entries(ACTIONS).map(([name, { label, states, kind }]) => {
      const fitting = jobs.filter(({ state }) => states.includes(state));
      return (
        fitting.length > 0 &&
        button(`${label} ${count(fitting.length)}…`, () => ask(name, fitting, page), {
          kind: kind === "danger" ? "danger-quiet" : "",
        })
      );
    }),
    button(
      "Clear",
      () => {
        page.memory.chosen = new Set();
        page.redraw();
      },
      { kind: "quiet" },
    ),
  );
}

function chosenIn({ memory }) {
  memory.chosen ??= new Set();
  return memory.chosen;
}

function checkbox(label, isOn, onTurn) {
  return h(
    "label.choose",
    {},
    h("input", {
      type: "checkbox",
      checked: isOn,
      "aria-label": label,
      onchange: (event) => onTurn(event.currentTarget.checked),
    }),
    h("span", { "aria-hidden": "true" }, "Choose"),
  );
}

function ask(name, jobs, page) {
  const { label, past, kind, text } = ACTIONS[name];
  const amount = plural(jobs.length, "chosen job");
  confirm({
    title: `${label} ${amount}?`,
    kind,
    label: `${label} ${amount}`,
    text,
    run: async () => {
      const ids = jobs.map(({ id }) => id);
      let [done, skipped] = [0, 0];
      for (let at = 0; at < ids.length; at += AT_ONCE) {
        const slice = ids.slice(at, at + AT_ONCE);
        const answer = await post("jobs/chosen", { action: name, ids: slice });
        done += answer.done;
        skipped += answer.skipped;
      }
      const rest = skipped ? ` Left out ${count(skipped)}: they had changed meanwhile.` : "";
      return `${past} ${plural(done, "job")}.${rest}`;
    },
    done: () => {
      page.memory.chosen = new Set();
      page.memory.rows = undefined;
      page.refresh();
    },
  });
}
