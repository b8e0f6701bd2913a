// Builds and updates elements. All text goes through text nodes, all styles through the CSSOM, so
// names and errors of users cannot become markup. Views describe the whole page for each answer of
// the server; `update` changes only what differs, so focus, selection and scroll position stay.

const SVG = "http://www.w3.org/2000/svg";
const LISTENERS = Symbol("listeners");

/** Build an HTML element: h("a.name", {href, onclick}, "text", child, ...). */
export function h(tag, props, ...children) {
  const [name, ...classes] = tag.split(".");
  return fill(document.createElement(name), classes, props, children);
}

/** Build an SVG element in the same way. */
export function s(tag, props, ...children) {
  const [name, ...classes] = tag.split(".");
  return fill(document.createElementNS(SVG, name), classes, props, children);
}

function fill(element, classes, props, children) {
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [name, value] of Object.entries(props ?? {})) set(element, name, value);
  append(element, children);
  return element;
}

function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) listen(element, name.slice(2), value);
  else if (name === "class") {
    const classes = [element.getAttribute("class"), value].filter(Boolean).join(" ");
    element.setAttribute("class", classes);
  } else if (name === "style") {
    for (const [property, text] of Object.entries(value)) element.style.setProperty(property, text);
  } else element.setAttribute(name, value === true ? "" : String(value));
}

function listen(element, type, listener) {
  element[LISTENERS] ??= {};
  if (!(type in element[LISTENERS])) element.addEventListener(type, dispatch);
  element[LISTENERS][type] = listener;
}

// The listener is looked up when the event comes, so `update` can replace it.
function dispatch(event) {
  event.currentTarget[LISTENERS][event.type]?.(event);
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/** Make the children of `element` look like `children`, and keep the nodes that still fit. */
export function update(element, ...children) {
  const wanted = document.createElement("div");
  append(wanted, children);
  morphChildren(element, wanted);
}

function morphChildren(old, wanted) {
  const keys = new Set([...wanted.children].map(keyOf));
  const byKey = new Map();
  // Rows that are gone leave first: moving the rows behind them would take the focus from them.
  for (const child of [...old.children]) {
    if (keyOf(child) === undefined) continue;
    if (keys.has(keyOf(child))) byKey.set(keyOf(child), child);
    else child.remove();
  }
  let place = old.firstChild;
  for (const child of [...wanted.childNodes]) {
    const key = keyOf(child);
    const kept = key === undefined ? place : byKey.get(key);
    if (kept && alike(kept, child) && (key !== undefined || keyOf(kept) === undefined)) {
      byKey.delete(key);
      if (kept === place) place = place.nextSibling;
      else old.insertBefore(kept, place);
      morph(kept, child);
    } else old.insertBefore(child, place);
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

function keyOf(node) {
  return node?.dataset?.key;
}

function alike(old, wanted) {
  return old.nodeName === wanted.nodeName && keyOf(old) === keyOf(wanted);
}

function morph(old, wanted) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== wanted.data) old.data = wanted.data;
    return;
  }
  if (old.hasAttribute("data-keep")) return; // looks after itself, like the search field
  if (old.type === "checkbox" && old.defaultChecked !== wanted.defaultChecked)
    old.checked = wanted.defaultChecked;
  // What the reader has typed stays, unless the view itself has changed the value.
  if (old.nodeName === "INPUT" && old.defaultValue !== wanted.defaultValue)
    old.value = wanted.defaultValue;
  morphAttributes(old, wanted);
  morphListeners(old, wanted);
  morphChildren(old, wanted);
}

function morphAttributes(old, wanted) {
  // Whether a <details> is open is the reader's choice; styles must not go through attributes.
  const own = (name) => name === "style" || (name === "open" && old.nodeName === "DETAILS");
  for (const { name } of [...old.attributes]) {
    if (!own(name) && !wanted.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of [...wanted.attributes]) {
    if (!own(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old.style && old.style.cssText !== wanted.style.cssText)
    old.style.cssText = wanted.style.cssText;
}

function morphListeners(old, wanted) {
  const fresh = wanted[LISTENERS] ?? {};
  for (const type of Object.keys(old[LISTENERS] ?? {}))
    if (!(type in fresh)) old[LISTENERS][type] = null;
  for (const [type, listener] of Object.entries(fresh)) listen(old, type, listener);
}
