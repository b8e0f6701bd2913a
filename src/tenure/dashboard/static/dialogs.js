// Dialogs: what an action does is said once, with the count, before it is done.

import { post } from "./api.js";
import { h } from "./dom.js";
import { announce } from "./notices.js";
import { button } from "./widgets.js";

const SPANS = [
  ["15 minutes", 900],
  ["1 hour", 3600],
  ["4 hours", 14400],
  ["1 day", 86400],
  ["Until it is resumed", null],
];

/**
 * Ask for a confirmation. `run(values)` does the work and returns what to announce. The dialog
 * stays open with the error if it fails.
 */
export function confirm({
  title,
  text,
  label,
  kind = "primary",
  fields = [],
  run,
  done = () => {},
}) {
  const opener = document.activeElement;
  const problem = h("p.problem", { role: "alert" });
  const go = button(label, null, { kind, type: "submit" });
  const form = h(
    "form",
    { onsubmit: (event) => submit(event) },
    h("h2", { id: "dialog-title" }, title),
    h(
      "div.dialog-text",
      {},
      [text].flat().map((part) => h("p", {}, part)),
    ),
    fields.map((field) => field.element),
    problem,
    h(
      "div.dialog-actions",
      {},
      button("Keep as it is", () => dialog.close()),
      go,
    ),
  );
  const dialog = h(
    "dialog",
    {
      "aria-labelledby": "dialog-title",
      onclose: () => {
        dialog.remove();
        if (opener?.isConnected) opener.focus();
      },
    },
    form,
  );
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });

  async function submit(event) {
    event.preventDefault();
    go.disabled = true;
    problem.textContent = "";
    try {
      const message = await run(
        Object.fromEntries(fields.map((field) => [field.name, field.value()])),
      );
      dialog.close();
      announce(message, { isShown: true, level: "note" });
      done();
    } catch (error) {
      problem.textContent = error.message;
      go.disabled = false;
    }
  }
  document.body.append(dialog);
  dialog.showModal();
  (form.querySelector("input, select") ?? go).focus();
}

/** A field for a text. */
export function textField(name, label, placeholder = "") {
  const input = h("input", {
    type: "text",
    name,
    placeholder,
    maxlength: 200,
    autocomplete: "off",
  });
  return {
    name,
    value: () => input.value.trim(),
    element: h("label.field", {}, h("span", {}, label), input),
  };
}

function spanField() {
  const select = h(
    "select",
    { name: "seconds" },
    SPANS.map(([label], index) => h("option", { value: index, selected: index === 1 }, label)),
  );
  return {
    name: "seconds",
    value: () => SPANS[Number(select.value)][1],
    element: h("label.field", {}, h("span", {}, "For how long"), select),
  };
}

/** Ask for how long and why, then pause at `address`. */
export function askPause({ title, text, address, label = "Pause", said, done }) {
  confirm({
    title,
    text,
    label,
    done,
    fields: [
      spanField(),
      textField("reason", "Reason, for your colleagues", "for example: release 4.2"),
    ],
    run: async ({ seconds, reason }) => {
      await post(address, { seconds, reason });
      return said;
    },
  });
}

/** Run an action that needs no question, and say how it ended. */
export async function act(address, body, message, done = () => {}) {
  try {
    const answer = await post(address, body);
    const said = typeof message === "function" ? message(answer) : { text: message };
    announce(said.text, { isShown: true, link: said.link ?? null });
    done();
  } catch (error) {
    announce(error.message, { isShown: true, level: "error" });
  }
}
