// How good a model is: measures, ROC curves, calibration, and a forest plot of the sites.
class Evaluations {
  constructor() { this.measure = null; }

  update(runs) {
    const known = runs.filter((run) => run.evaluation);
    byId("evaluation").hidden = known.length === 0;
    const text = JSON.stringify(known.map((run) => [run.label, run.evaluation]));
    if (this.seen === text) return;
    this.seen = text;
    this.fill(known, runs.length > 1);
  }

  fill(known, several) {
    byId("evaluation-body").replaceChildren(...known.flatMap((run) => {
      const { overall, sites, roc, calibration, notes } = run.evaluation, name = several ? `${run.label}: ` : "";
      const cards = [el("div", { class: "card" }, el("h3", {}, `${name}all sites`),
        el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Measures over all sites" },
          table(["Measure", "Value", ...limitNames(run.evaluation.level)], overall.map((one) => [one.name, ...["value", "lower", "upper"].map((key) => shortly(one[key]))]), 1)),
        ...notes.map((note) => el("p", { class: "muted" }, note)))];
      if (sites.length > 1) cards.push(this.forest(run.evaluation));
      const pictures = [
        roc.length ? unitChart("ROC curve", "1 \u2212 specificity", "sensitivity", (at) => rocLines(roc, at)) : null,
        calibration.length ? unitChart("Calibration", "predicted chance", "observed share", (at) => calibrationMarks(calibration, at)) : null].filter(Boolean);
      return pictures.length ? [...cards, el("div", { class: "pair" }, ...pictures)] : cards;
    }));
  }

  // A row for each site and one for all: the measure, with its limits.
  forest(found) {
    const names = found.overall.map((one) => one.name);
    if (!names.includes(this.measure)) this.measure = names[0];
    const body = el("div", {});
    const draw = () => {
      const rows = [...found.sites.map((site) => [site.name, site.measures.find((one) => one.name === this.measure)]),
        ["all sites", found.overall.find((one) => one.name === this.measure)]].filter(([, one]) => one && isNumber(one.value));
      body.replaceChildren(forestPicture(rows), table(["Site", this.measure, ...limitNames(found.level)],
        rows.map(([name, one]) => [name, ...["value", "lower", "upper"].map((key) => shortly(one[key]))]), 1));
    };
    draw();
    return el("div", { class: "card" }, el("h3", {}, "Sites"),
      picker("Measure", names.map((name) => [name, name]), this.measure, (value) => { this.measure = value; draw(); }), body);
  }
}

const shortly = (value) => (isNumber(value) ? figure(value, 4) : "\u2013");
const limitNames = (level) => [`${figure(50 * (1 - level), 4)} %`, `${figure(100 - 50 * (1 - level), 4)} %`];

function forestPicture(rows) {
  const width = 640, line = 24, left = 150, right = width - 12, height = line * rows.length + 34;
  const ends = rows.flatMap(([, one]) => [one.value, one.lower, one.upper].filter(isNumber));
  const [low, high] = padded(Math.min(...ends), Math.max(...ends), false, 0.05), sx = scale(low, high, left, right, false);
  const nodes = linearTicks(low, high, 5).flatMap((value) => [svg("line", { class: "grid", x1: sx(value), x2: sx(value), y1: 4, y2: height - 26 }),
    svg("text", { x: sx(value), y: height - 8, "text-anchor": "middle" }, figure(value, 4))]);
  rows.forEach(([name, one], place) => {
    const y = line * place + line / 2 + 2, last = place === rows.length - 1, size = last ? 6 : 4;
    nodes.push(svg("text", { x: left - 10, y: y + 4, "text-anchor": "end" }, cut(name, 18)));
    if (isNumber(one.lower) && isNumber(one.upper)) nodes.push(svg("line", { class: "c0", stroke: "currentColor", "stroke-width": 1.4, x1: sx(one.lower), x2: sx(one.upper), y1: y, y2: y }));
    nodes.push(svg("rect", { class: `c${last ? 1 : 0}`, fill: "currentColor", x: sx(one.value) - size, y: y - size, width: 2 * size, height: 2 * size,
      transform: last ? `rotate(45 ${sx(one.value).toFixed(1)} ${y})` : null }));
  });
  return el("div", { class: "plot" }, svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true", focusable: "false", style: { "max-width": `${width}px` } }, ...nodes));
}

// A square from 0 to 1 with its diagonal; draw gets what turns a point into pixels.
function unitChart(title, xName, yName, draw) {
  const size = 340, left = 48, top = 10, right = size - 10, bottom = size - 44;
  const sx = scale(0, 1, left, right, false), sy = scale(0, 1, bottom, top, false);
  const nodes = [0, 0.2, 0.4, 0.6, 0.8, 1].flatMap((value) => [
    svg("line", { class: "grid", x1: left, x2: right, y1: sy(value), y2: sy(value) }), svg("line", { class: "grid", x1: sx(value), x2: sx(value), y1: top, y2: bottom }),
    svg("text", { x: left - 7, y: sy(value) + 4, "text-anchor": "end" }, figure(value, 2)), svg("text", { x: sx(value), y: bottom + 16, "text-anchor": "middle" }, figure(value, 2))]);
  nodes.push(svg("line", { class: "cross", x1: sx(0), y1: sy(0), x2: sx(1), y2: sy(1) }), svg("text", { x: (left + right) / 2, y: size - 8, "text-anchor": "middle" }, xName),
    svg("text", { x: 12, y: (top + bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(top + bottom) / 2})` }, yName));
  const { marks, numbers } = draw((x, y) => [sx(Math.min(1, Math.max(0, x))), sy(Math.min(1, Math.max(0, y)))]);
  return el("div", { class: "card" }, el("h3", {}, title),
    el("div", { class: "plot" }, svg("svg", { viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": `${title}; the numbers follow`, style: { "max-width": `${size}px` } }, ...nodes, ...marks)),
    numbersOf(`${title} in numbers`, numbers));
}

function rocLines(roc, at) {
  const marks = roc.map(({ points }, place) => svg("polyline", { class: `c${place % COLOURS}`, fill: "none", stroke: "currentColor", "stroke-width": place === 0 ? 2.2 : 1.1, "stroke-opacity": place === 0 ? 1 : 0.7,
    points: points.map(([x, y]) => at(x, y).map((value) => value.toFixed(1)).join(",")).join(" ") }));
  return { marks, numbers: () => table(["Curve", "1 \u2212 specificity", "Sensitivity"], roc.flatMap(({ name, points }) => points.map(([x, y]) => [name, figure(x, 4), figure(y, 4)])), 1) };
}

function calibrationMarks(groups, at) {
  const marks = groups.flatMap(([predicted, observed, lower, upper]) => {
    const [x, y] = at(predicted, observed), [, low] = at(predicted, lower), [, high] = at(predicted, upper);
    return [svg("line", { class: "c0", stroke: "currentColor", "stroke-width": 1.4, x1: x, x2: x, y1: low, y2: high }), svg("circle", { class: "c0", fill: "currentColor", cx: x, cy: y, r: 4 })];
  });
  return { marks, numbers: () => table(["Predicted", "Observed", "2.5 %", "97.5 %"], groups.map((group) => group.map((value) => figure(value, 4))), 0) };
}
