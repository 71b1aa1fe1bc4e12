// Sections that files beside a run fill: one run at a time, drawn again when what is known of it has changed.
class View {
  // id: of the section; keys: what of a run it shows.
  constructor(id, keys) {
    this.id = id;
    this.keys = keys;
    this.run = null;
    this.zooms = new Map();
  }

  update(runs) {
    const known = runs.filter((run) => this.keys.some((key) => run[key]));
    byId(this.id).hidden = known.length === 0;
    const text = JSON.stringify(known.map((run) => [run.id, run.label, this.keys.map((key) => run[key])]));
    if (this.seen === text) return;
    this.seen = text;
    this.several = runs.length > 1;
    this.choose(known);
  }

  choose(known) {
    const run = known.find((one) => one.id === this.run) || known[0];
    if (!run) { byId(`${this.id}-body`).replaceChildren(); return; }
    const named = (one) => (known.filter((other) => other.label === one.label).length > 1 ? `${one.label}, ${one.id}` : one.label);
    const chooser = known.length > 1
      ? el("div", { class: "bar" }, picker("Run", known.map((one) => [one.id, named(one)]), run.id, (id) => { this.run = id; this.choose(known); }))
      : this.several ? el("p", { class: "muted" }, run.label) : null;
    byId(`${this.id}-body`).replaceChildren(...[chooser, ...this.fill(run)].filter(Boolean));
  }

  // A chart of what no round has to do with; lines have values against a penalty weight, for instance.
  chart(what, against, xLog, series, lines) {
    const made = new Chart(what, this.zooms);
    made.update(against, against.axis, xLog, series, lines);
    return made.node;
  }
}

const scrolled = (name, node) => el("div", { class: "scroll compact", tabindex: "0", role: "region", "aria-label": name }, node);
const limitNames = (level) => [`${figure(50 * (1 - level), 4)} %`, `${figure(100 - 50 * (1 - level), 4)} %`];
const lineStyle = (place, label) => ({ label, runs: [null], colour: `c${place % COLOURS}`, dash: DASHES[Math.floor(place / COLOURS) % DASHES.length], mark: MARKS[place % MARKS.length] });

// Four digits, zeros at the end among them, as tables of coefficients have them.
function digits(value, places = 4) {
  if (!isNumber(value)) return "\u2013";
  if (value === 0) return "0";
  const text = value.toPrecision(places);
  return text.includes("e") || Math.abs(value) < 1e-4 ? figure(value, places) : text.replace("-", MINUS);
}

// Numbers of which only the size matters: none is smaller than the third digit after the point shows.
const plain = (value) => (isNumber(value) && Math.abs(value) < 5e-4 ? "0.000" : digits(value));
// As journals print p values.
const chance = (value) => (!isNumber(value) ? "\u2013" : value < 0.001 ? "< 0.001" : value.toFixed(3));
