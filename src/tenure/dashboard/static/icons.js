// Small icons, drawn on a grid of 16. Each state has its own shape, so that it can be told apart
// without colour.

import { s } from "./dom.js";

const PATHS = {
  overview: "M2.5 8.5 8 3l5.5 5.5M4 7.5V13h8V7.5",
  jobs: "M3 4h10M3 8h10M3 12h6",
  timers: "M8 4.5V8l2.5 1.5M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12",
  locks: "M4 7.5h8V13H4zM5.5 7.5V5a2.5 2.5 0 0 1 5 0v2.5",
  replicas: "M3 3h10v4H3zM3 9h10v4H3zM5.5 5h.01M5.5 11h.01",
  events: "M2 8h2.5L6.5 3l3 10 2-5H14",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9M10.5 10.5 14 14",
  light:
    "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6M8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.5 3.5l.7.7M11.8 11.8l.7.7M3.5 12.5l.7-.7M11.8 4.2l.7-.7",
  dark: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5",
  auto: "M8 2a6 6 0 1 0 0 12zM8 2a6 6 0 0 1 0 12",
  copy: "M5.5 5.5h8v8h-8zM3.5 10.5h-1v-8h8v1",
  next: "M6 3.5 10.5 8 6 12.5",
  trace: "M2.5 4h6M5.5 8h6M8.5 12h5",
  close: "M4 4l8 8M12 4l-8 8",
};

// [outline, fill]: what is drawn as a line, and what as an area.
const SHAPES = {
  waiting: ["M8 13.25a5.25 5.25 0 1 0 0-10.5 5.25 5.25 0 0 0 0 10.5M8 5.25V8l1.75 1.25", ""],
  running: ["", "M4.5 2.75v10.5L13 8z"],
  succeeded: ["M3 8.5 6.5 12 13 4.5", ""],
  failed: ["M4 4l8 8M12 4l-8 8", ""],
  cancelled: ["M8 13.25a5.25 5.25 0 1 0 0-10.5 5.25 5.25 0 0 0 0 10.5M4.5 11.5l7-7", ""],
  cancelling: ["M8 13.25a5.25 5.25 0 1 0 0-10.5 5.25 5.25 0 0 0 0 10.5", "M6 6h4v4H6z"],
  retry: ["M12.5 5.5A5.25 5.25 0 1 0 13.25 8M12.75 2.5v3.25H9.5", ""],
  "handed back": ["M13 8H3.5M7 4.5 3.5 8 7 11.5", ""],
  lost: ["M6 5.75a2 2 0 1 1 2.75 1.9c-.5.2-.75.6-.75 1.35M8 11.75v.01", ""],
  skipped: ["M3.5 4 7.5 8l-4 4M8.5 4l4 4-4 4", ""],
  missed: ["M3.5 8h2M7 8h2M10.5 8h2", ""],
  ran: ["M3 8.5 6.5 12 13 4.5", ""],
  paused: ["", "M4.5 3.5h2.5v9H4.5zM9 3.5h2.5v9H9z"],
  alive: ["", "M8 12.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9"],
  expired: ["M8 12.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9M8 6v2.5", ""],
  dead: ["M4 4l8 8M12 4l-8 8", ""],
  error: ["M8 5v4M8 11.25v.01", "", "M5.25 1.75h5.5l3.5 3.5v5.5l-3.5 3.5h-5.5l-3.5-3.5v-5.5z"],
  warning: ["M8 6.25V9.5M8 11.75v.01", "", "M8 2.25 14.25 13.5H1.75z"],
  note: ["M8 7.5v4M8 4.75v.01", "", "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12"],
};

/** A line icon of the navigation or a button. */
export function icon(name) {
  return s(
    "svg.icon",
    { viewBox: "0 0 16 16", "aria-hidden": "true" },
    s("path", { d: PATHS[name] }),
  );
}

/** The shape of a state, an outcome or a level. */
export function shape(name) {
  const [outline, area, frame] = SHAPES[name] ?? SHAPES.waiting;
  return s(
    "svg.icon.shape",
    { viewBox: "0 0 16 16", "aria-hidden": "true" },
    area && s("path.area", { d: area }),
    frame && s("path", { d: frame }),
    outline && s("path", { d: outline }),
  );
}
