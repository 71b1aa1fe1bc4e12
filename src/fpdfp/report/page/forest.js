// A forest plot: estimates with their intervals, a row for each; squares grow with weights, and pooled ones are diamonds.
// rows: {label, value, lower, upper, weight, pooled}; log: for ratios; zero: the value of no effect.
function forestPlot(title, rows, level, { log = false, zero = null }) {
  const plot = el("div", { class: "plot" });
  onWidth(plot, () => plot.replaceChildren(forestPicture(rows, plot.clientWidth, log, zero)));
  const weights = rows.some((one) => isNumber(one.weight));
  const head = ["", "Estimate", ...limitNames(level), ...(weights ? ["Weight"] : [])];
  return el("div", {}, plot, numbersOf(`${title} in numbers`, () => table(head, rows.map((one) => [one.label, ...[one.value, one.lower, one.upper].map((value) => digits(value)),
    ...(weights ? [isNumber(one.weight) ? percent(one.weight) : ""] : [])]), 1)));
}

function forestPicture(rows, width, log, zero) {
  const narrow = width < 520, line = 24, left = narrow ? 112 : 170, right = width - (narrow ? 12 : 190), height = line * rows.length + 34;
  const good = (value) => isNumber(value) && (!log || value > 0);
  const ends = [...rows.flatMap((one) => [one.value, one.lower, one.upper]), zero].filter(good);
  const [low, high] = padded(Math.min(...ends), Math.max(...ends), log, 0.05), sx = scale(low, high, left, right, log);
  let last = -Infinity;
  const nodes = ticks(low, high, (right - left) / 70, log).flatMap((value) => {
    const x = sx(value), text = figure(value, 3), free = x - text.length * 3.5 > last + 4;
    if (free) last = x + text.length * 3.5;
    return [svg("line", { class: "grid", x1: x, x2: x, y1: 4, y2: height - 26 }), free ? svg("text", { x, y: height - 8, "text-anchor": "middle" }, text) : null];
  });
  if (good(zero)) nodes.push(svg("line", { class: "cross", x1: sx(zero), x2: sx(zero), y1: 4, y2: height - 26 }));
  rows.forEach((one, place) => {
    const y = line * place + line / 2 + 2, size = isNumber(one.weight) ? 2.5 + 6 * Math.sqrt(one.weight) : one.pooled ? 6 : 4, colour = one.pooled ? "c1" : "c0";
    const known = good(one.lower) && good(one.upper), x = sx(one.value);
    nodes.push(svg("text", { class: "row", x: left - 10, y: y + 4, "text-anchor": "end" }, svg("title", {}, one.label), cut(one.label, narrow ? 15 : 25)));
    if (!narrow) {
      nodes.push(svg("text", { class: "row", x: width - 6, y: y + 4, "text-anchor": "end" },
        known ? `${digits(one.value, 3)} (${digits(one.lower, 3)} to ${digits(one.upper, 3)})` : digits(one.value, 3)));
    }
    if (one.pooled && known) {
      nodes.push(svg("path", { class: colour, fill: "currentColor", d: `M${sx(one.lower)} ${y}L${x} ${y - 6}L${sx(one.upper)} ${y}L${x} ${y + 6}Z` }));
      return;
    }
    if (known) nodes.push(svg("line", { class: colour, stroke: "currentColor", "stroke-width": 1.4, x1: sx(one.lower), x2: sx(one.upper), y1: y, y2: y }));
    nodes.push(svg("rect", { class: colour, fill: "currentColor", x: x - size, y: y - size, width: 2 * size, height: 2 * size }));
  });
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true", focusable: "false" }, ...nodes);
}
