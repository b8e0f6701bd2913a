// Turns values of the API into the words and numbers of the pages. No function here touches the page.

let offset = 0; // the store's clock minus the browser's, in milliseconds

/** Take over the store's clock from an answer of the API. */
export function setNow(instant) {
  if (instant) offset = Date.parse(instant) - Date.now();
}

/** The store's clock now, in milliseconds. */
export function now() {
  return Date.now() + offset;
}

const UNITS = [
  [86400, "d"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
];

/** "400 ms", "12 s", "3 h 20 min": two units at most, as `duration` in core/durations.py writes. */
export function duration(seconds, isCoarse = false) {
  if (seconds === null || seconds === undefined || !isFinite(seconds)) return "–";
  const size = Math.abs(seconds);
  if (!size) return "0 s";
  if (size < 0.9995) return `${Math.round(size * 1000)} ms`;
  if (size < 9.95) return `${Number(size.toFixed(1))} s`;
  const whole = Math.round(size);
  const index = UNITS.findIndex(([unit]) => whole >= unit);
  const [unit, name] = UNITS[index];
  const count = Math.floor(whole / unit);
  const [smaller, smallerName] = UNITS[index + 1] ?? [0, ""];
  const rest = smaller ? Math.floor((whole % unit) / smaller) : 0;
  return rest && !isCoarse ? `${count} ${name} ${rest} ${smallerName}` : `${count} ${name}`;
}

/** "3 min ago", "in 12 s", "now". */
export function relative(instant) {
  const seconds = (Date.parse(instant) - now()) / 1000;
  if (!isFinite(seconds)) return "–";
  if (Math.abs(seconds) < 1) return "now";
  // The past is told in one unit: a list in which every row counts seconds is restless.
  const text = duration(Math.round(Math.abs(seconds)), seconds < 0);
  return seconds < 0 ? `${text} ago` : `in ${text}`;
}

/** An instant with date, time and zone; in the zone `tz` if it is not the reader's. */
export function exact(instant, tz, fraction = true) {
  try {
    return new Intl.DateTimeFormat("sv-SE", {
      timeZone: tz || undefined,
      year: "numeric",
      month: "2-digit",
      day: "2-digit",
      hour: "2-digit",
      minute: "2-digit",
      second: "2-digit",
      fractionalSecondDigits: fraction ? 3 : undefined,
      timeZoneName: "short",
    })
      .format(new Date(instant))
      .replace(",", ".");
  } catch {
    return String(instant);
  }
}

/** Weekday, date and time of a coming run: "Fri 20 Nov 02:30:00". */
export function moment(instant, tz) {
  try {
    const parts = new Intl.DateTimeFormat("en-GB", {
      timeZone: tz || undefined,
      weekday: "short",
      day: "numeric",
      month: "short",
      hour: "2-digit",
      minute: "2-digit",
      second: "2-digit",
    }).format(new Date(instant));
    return parts.replaceAll(",", "");
  } catch {
    return String(instant);
  }
}

/** The reader's time zone, as "Europe/Berlin". */
export function viewerZone() {
  return Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
}

/** Seconds between two instants; until now if the second is missing. */
export function between(start, end) {
  if (!start) return null;
  return Math.max(0, ((end ? Date.parse(end) : now()) - Date.parse(start)) / 1000);
}

export function count(value, isCapped = false) {
  if (value === null || value === undefined) return "–";
  return value.toLocaleString("en-US") + (isCapped ? "+" : "");
}

/** "1 job", "1,204 jobs". */
export function plural(value, noun, isCapped = false) {
  return `${count(value, isCapped)} ${noun}${value === 1 && !isCapped ? "" : "s"}`;
}

export function bytes(size) {
  if (size === null || size === undefined) return "–";
  for (const [unit, name] of [
    [1e9, "GB"],
    [1e6, "MB"],
    [1e3, "kB"],
  ]) {
    if (size >= unit) return `${Number((size / unit).toFixed(size >= 10 * unit ? 0 : 1))} ${name}`;
  }
  return `${size} B`;
}

/** Shorten a long id in the middle: "019ab3f2…c41d". */
export function shortId(id) {
  return id.length > 16 ? `${id.slice(0, 8)}…${id.slice(-4)}` : id;
}

const UTC_TIME = /(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC/;

/** A sentence of the server in parts: texts, and its instants as {instant, utc}. */
export function sentence(text) {
  const parts = [];
  let rest = text;
  for (let found = rest.match(UTC_TIME); found; found = rest.match(UTC_TIME)) {
    const [utc, date, time] = found;
    parts.push(rest.slice(0, found.index), { instant: `${date}T${time}Z`, utc });
    rest = rest.slice(found.index + utc.length);
  }
  return [...parts, rest];
}

/** The first line of an error. */
export function firstLine(text) {
  return (text ?? "").split("\n", 1)[0];
}

/** The last line of a traceback says what was raised; of a one-line error it is the same. */
export function summary(text) {
  const lines = (text ?? "")
    .trim()
    .split("\n")
    .filter((line) => line.trim());
  return lines.length ? lines.at(-1).trim() : "";
}

/** "a, b and c". */
export function list(words) {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}
