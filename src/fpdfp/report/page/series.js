// Runs that differ in their seed alone are one series; what that is, the folder of each run says.
const COLOURS = 8;
const DASHES = [null, "9 5", "3 4"];
const MARKS = ["M-4 0A4 4 0 1 0 4 0A4 4 0 1 0-4 0Z", "M-3.6-3.6H3.6V3.6H-3.6Z", "M0-4.8L4.6 3.6H-4.6Z",
  "M0-5L5 0L0 5L-5 0Z", "M0 4.8L4.6-3.6H-4.6Z"];

function seriesOf(runs, live) {
  const found = new Map();
  for (const run of runs) {
    const key = run.series;
    if (!found.has(key)) found.set(key, { key, label: run.name, runs: [] });
    found.get(key).runs.push(run);
  }
  const series = [...found.values()];
  // On a live page, one that begins later does not change the colours of the others.
  const begun = (one) => one.runs.map((run) => run.created || "later").sort()[0];
  const order = live ? [...series].sort((a, b) => (begun(a) < begun(b) ? -1 : begun(a) > begun(b) ? 1 : 0)) : series;
  order.forEach((one, place) => { one.place = place; });
  const folder = ({ runs: [run, ...others] }) => (others.length ? run.id.split("/").slice(0, -1).join("/") || run.id : run.id);
  for (const detail of [(one) => one.runs[0].method.split(",")[0], folder]) {
    const labels = series.map((one) => one.label), details = series.map(detail);
    series.forEach((one, place) => {
      const alike = details.filter((_, other) => labels[other] === labels[place]);
      if (new Set(alike).size > 1 && details[place] && !one.label.includes(details[place])) one.label += ` (${details[place]})`;
    });
  }
  for (const one of series) {
    one.colour = `c${one.place % COLOURS}`;
    one.dash = DASHES[Math.floor(one.place / COLOURS) % DASHES.length];
    one.mark = MARKS[one.place % MARKS.length];
    for (const run of one.runs) run.label = one.label;
    one.full = one.runs.length > 1 ? `${one.label}, ${one.runs.length} seeds` : one.label;
  }
  return series;
}

function swatch(one) {
  return svg("svg", { class: `swatch ${one.colour}`, viewBox: "0 0 26 12", "aria-hidden": "true" },
    svg("line", { x1: 1, x2: 25, y1: 6, y2: 6, "stroke-dasharray": one.dash }),
    svg("path", { d: one.mark, transform: "translate(13 6)" }));
}

// What a chart can be drawn against.
const AGAINST = {
  round: { label: "Rounds", axis: "rounds", whole: true, of: (run) => run.columns.round, tick: (value) => figure(value), say: (value) => figure(value) },
  bits: { label: "Total bits", axis: "all bits, up and down", tick: (value) => bits(value), say: (value) => bits(value),
    of: (run, all) => sums(run, ["total_up", "total_down"], all ? [] : ["evaluation_up", "evaluation_down"]) },
  bits_up: { label: "Total bits up", axis: "all bits that clients send", tick: (value) => bits(value), say: (value) => bits(value),
    of: (run, all) => sums(run, ["total_up"], all ? [] : ["evaluation_up"]) },
  seconds: { label: "Seconds", axis: "seconds", of: (run) => run.columns.seconds, tick: (value) => figure(value), say: (value) => duration(value) },
};

function sums(run, columns, without) {
  const at = (names, i) => names.reduce((sum, name) => sum + (run.columns[name][i] ?? NaN), 0);
  return run.columns.round.map((_, i) => at(columns, i) - at(without, i));
}

function median(values) {
  const good = values.filter(isNumber).sort((a, b) => a - b);
  if (good.length === 0) return null;
  const half = good.length >> 1;
  return good.length % 2 ? good[half] : (good[half - 1] + good[half]) / 2;
}

// The curve in the middle of several seeds, as far as all of them have got; null where they were evaluated differently.
function middle(lines) {
  const length = Math.min(...lines.map((line) => line.x.length));
  const { rounds } = lines[0];
  for (const line of lines) {
    for (let i = 0; i < length; i++) if (line.rounds[i] !== rounds[i]) return null;
  }
  const at = (name) => Array.from({ length }, (_, i) => median(lines.map((line) => line[name][i])));
  return { x: at("x"), y: at("y") };
}
