// Elements, without a word of HTML: whatever a run is called stays text.
const SVG_NAMES = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const el = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG_NAMES, name), attributes, children);

// A row of buttons of which one is pressed.
function segments(name, options, chosen, choose, small = false) {
  const buttons = options.map(([value, label, title]) =>
    el("button", { type: "button", "data-value": value, title, "aria-pressed": String(value === chosen),
      onclick: () => { press(value); choose(value); } }, label));
  function press(value) {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.value === String(value)));
  }
  const row = el("span", { class: small ? "segments small" : "segments" }, ...buttons);
  const group = el("span", { class: "choice", role: "group", "aria-label": name },
    small ? null : el("span", { class: "name", "aria-hidden": "true" }, name), row);
  group.press = press;
  return group;
}

// A list of which one is chosen, with its name before it.
function picker(name, options, chosen, choose) {
  const list = el("select", { onchange: () => choose(list.value) },
    ...options.map(([value, label]) => el("option", { value, selected: value === chosen }, label)));
  return el("label", { class: "field" }, el("span", { class: "name" }, name), list);
}

function table(head, rows, numbersFrom) {
  const kind = (place) => (place >= numbersFrom ? "number" : null);
  return el("table", {},
    el("thead", {}, el("tr", {}, ...head.map((text, place) => el("th", { scope: "col", class: kind(place) }, text)))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((text, place) =>
      place === 0 ? el("th", { scope: "row" }, text) : el("td", { class: kind(place) }, text))))));
}

// A table that is made when it is opened: the same in numbers.
function numbersOf(name, make) {
  const place = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name });
  const box = el("details", { ontoggle: () => renew() }, el("summary", {}, "Numbers"), place);
  function renew() { if (box.open) place.replaceChildren(make()); }
  box.renew = renew;
  return box;
}

// Draw again when the width changes, and only then.
function onWidth(node, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (node.clientWidth !== width && node.clientWidth > 0) { width = node.clientWidth; draw(); }
  }).observe(node);
}
