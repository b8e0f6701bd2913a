// Actions on all jobs of a filter: requeue, cancel, delete.

import { post, session } from "../api.js";
import { confirm } from "../dialogs.js";
import { h } from "../dom.js";
import { count, list, plural } from "../format.js";
import { announce } from "../notices.js";
import { button } from "../widgets.js";

/** What can be done with many jobs, and in which states. */
export const ACTIONS = {
  requeue: {
    states: ["failed", "cancelled", "succeeded"],
    label: "Requeue",
    past: "Requeued",
    kind: "primary",
    text: "They wait again in their queues, with their attempts counted from the start. A job whose unique key another job has is left out.",
  },
  cancel: {
    states: ["waiting", "running"],
    label: "Cancel",
    past: "Cancelled",
    kind: "danger",
    text: "Waiting jobs never run. Running jobs are asked to stop; they end as cancelled when their handlers stop.",
  },
  delete: {
    states: ["waiting", "succeeded", "failed", "cancelled"],
    label: "Delete",
    past: "Deleted",
    kind: "danger",
    text: "They are removed for good, with their arguments, results, keys and tags. This cannot be undone.",
  },
};

/** The buttons for what can be done with all jobs of a filter. */
export function bulkActions(filter, page) {
  if (!session.may.act) return null;
  if (!filter.state) return h("span.muted", {}, "Choose jobs, or a state to act on all of them");
  return Object.entries(ACTIONS)
    .filter(([, { states: allowed }]) => allowed.includes(filter.state))
    .map(([name, { label, kind }]) =>
      button(`${label} all…`, () => ask(name, filter, page), {
        kind: kind === "danger" ? "danger-quiet" : "",
      }),
    );
}

// Counts first, so that the dialog can say how many jobs it is about.
async function ask(name, filter, page) {
  const { label, past, kind, text } = ACTIONS[name];
  let answer;
  try {
    answer = await post("jobs/count", { filter, action: name });
  } catch (error) {
    announce(error.message, { isShown: true, level: "error" });
    return;
  }
  const number = answer.count;
  const amount = plural(number, `${filter.state} job`, answer.is_capped);
  const conditions = Object.entries(filter)
    .filter(([key]) => key !== "state" && key !== "timers")
    .map(([key, value]) => `${key} “${value}”`);
  if (!number) {
    announce(`No job matches any more. Nothing to ${name}.`, { isShown: true });
    return;
  }
  confirm({
    title: `${label} ${amount}?`,
    kind,
    label: `${label} ${amount}`,
    text: [
      conditions.length
        ? `All with ${list(conditions)}.`
        : `All ${filter.state} jobs of this store, of every queue and task.`,
      text,
      answer.is_capped
        ? `More jobs may match: the first ${count(number)} are done now. Repeat it for the others.`
        : null,
    ].filter(Boolean),
    run: async () => {
      const { done, skipped } = await post("jobs/bulk", { action: name, filter, count: number });
      return `${past} ${plural(done, "job")}.${skipped ? ` Left out ${count(skipped)}: they had changed meanwhile.` : ""}`;
    },
    done: () => {
      page.memory.rows = undefined;
      page.refresh();
    },
  });
}
