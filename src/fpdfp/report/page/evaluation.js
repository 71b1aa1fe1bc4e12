// How good a model is: measures, ROC curves, calibration, and a forest plot of the sites.
class Evaluations extends View {
  constructor() {
    super("evaluation", ["evaluation"]);
    this.measure = null;
  }

  fill(run) {
    const found = run.evaluation, { overall, sites, roc, calibration, notes } = found;
    const cards = [el("div", { class: "card" }, el("h3", {}, "All sites"),
      scrolled("Measures over all sites", table(["Measure", "Value", ...limitNames(found.level)], overall.map((one) => [one.name, ...["value", "lower", "upper"].map((key) => plain(one[key]))]), 1)),
      ...notes.map((note) => el("p", { class: "muted" }, note)))];
    if (sites.length > 1) cards.push(this.forest(found));
    const pictures = [
      roc.length ? unitChart("ROC curve", "1 \u2212 specificity", "sensitivity", (at) => rocLines(roc, at)) : null,
      calibration.length ? unitChart("Calibration", "predicted chance", "observed share", (at) => calibrationMarks(calibration, at)) : null].filter(Boolean);
    return pictures.length ? [...cards, el("div", { class: "pair" }, ...pictures)] : cards;
  }

  // A row for each site and one for all: the measure, with its limits.
  forest(found) {
    const names = found.overall.map((one) => one.name);
    if (!names.includes(this.measure)) this.measure = names[0];
    const body = el("div", {});
    const draw = () => {
      const rows = [...found.sites.map((site) => ({ name: site.name, ...site.measures.find((one) => one.name === this.measure), label: site.name })),
        { ...found.overall.find((one) => one.name === this.measure), label: "all sites", pooled: true }].filter((one) => isNumber(one.value));
      body.replaceChildren(forestPlot(`${capital(this.measure)} at each site`, rows, found.level, {}));
    };
    draw();
    return el("div", { class: "card" }, el("h3", {}, "Sites"),
      picker("Measure", names.map((name) => [name, name]), this.measure, (value) => { this.measure = value; draw(); }), body);
  }
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
