// How a penalty weight was chosen: the curve of a cross-validation, and the path of coefficients.
const WEIGHTS = { axis: "penalty weight \u03b1, from strong to weak", reversed: true, tick: (value) => figure(value, 2), say: (value) => figure(value, 4) };

class Selections extends View {
  constructor() { super("selection", ["cross_validation", "path"]); }

  fill(run) {
    return [run.cross_validation && this.curves(run.cross_validation, run.path), run.path && this.path(run.path, run.cross_validation)].filter(Boolean).flat();
  }

  curves(found, path) {
    const { curves, scoring, folds, rule, alpha, of, greater_is_better: greater } = found;
    const lines = curves.map((curve, place) => {
      const series = { ...lineStyle(place, curve.name || scoring), faint: curves.length > 1 && !curve.chosen };
      return { id: String(place), name: series.label, series, x: curve.alphas, y: curve.mean, error: curve.error,
        low: curve.mean.map((value, i) => value - curve.error[i]), high: curve.mean.map((value, i) => value + curve.error[i]) };
    });
    const chosen = curves.find((curve) => curve.chosen) || curves[0];
    if (!chosen) return [];
    const what = {
      key: "cross-validation", title: `Cross-validation: ${scoring} of rows left out`, short: scoring, wide: true, log: false, many: "Curve",
      marks: weightMarks(chosen), say: (value) => figure(value, 5),
      facts: (line, i) => [["weight \u03b1", figure(line.x[i], 4)], ["standard error", figure(line.error[i], 3)]],
      head: () => ["Weight \u03b1", capital(scoring), "Standard error"], row: (line, i) => [figure(line.x[i], 4), figure(line.y[i], 5), figure(line.error[i], 3)],
    };
    if (path && path.nonzero.length && curves.length === 1) what.top = nonzeroAt(path);
    const legend = lines.length > 1 ? el("div", { class: "labels" }, ...lines.map((line) => el("span", {}, swatch(line.series), line.name))) : null;
    const node = this.chart(what, WEIGHTS, true, lines.map((line) => line.series), lines);
    const text = [`${count(folds, "fold", "folds")}; bars are one standard error over folds; ${greater ? "more" : "less"} is better.`,
      `Chosen by the rule \u201c${rule}\u201d: \u03b1 = ${figure(alpha, 4)}${chosen.name ? `, ${chosen.name}` : ""}. \u201cmin\u201d has the best mean, \u201c1se\u201d is the largest weight whose mean is within one standard error of that.`, what.top ? "Above: how many coefficients are not zero." : "",
      of > curves.length ? `${figure(curves.length)} of ${figure(of)} curves are shown, the best ones.` : ""].filter(Boolean).join(" ");
    node.append(el("p", { class: "muted" }, text));
    if (legend) node.insertBefore(legend, node.children[1]);
    return [node];
  }

  path(found, validated) {
    const { alphas, lines: given, of, weights, chosen, nonzero, rounds, bits_up: up, bits_down: down } = found;
    const lines = given.map((line, place) => ({ id: line.name, name: line.name, series: lineStyle(place, line.name), x: alphas, y: line.values }));
    const best = validated && validated.curves.find((curve) => curve.chosen);
    const what = {
      key: "path", title: "Regularisation path", short: "coefficient", wide: true, log: false, linear: true, crowded: true, many: "Coefficient",
      marks: best ? weightMarks(best) : isNumber(chosen) ? [{ x: chosen, short: "chosen", label: `chosen, \u03b1 = ${figure(chosen, 3)}`, dash: null }] : [],
      say: (value) => figure(value, 4), facts: (line, i) => [["weight \u03b1", figure(line.x[i], 4)], ...(nonzero.length ? [["not zero", figure(nonzero[i])]] : [])],
      head: () => ["Weight \u03b1", "Value"], row: (line, i) => [figure(line.x[i], 4), figure(line.y[i], 4)],
    };
    if (nonzero.length) what.top = nonzeroAt(found);
    const node = this.chart(what, WEIGHTS, true, lines.map((line) => line.series), lines);
    const shown = lines.length < of ? `${count(lines.length, "coefficient", "coefficients")} of ${figure(of)} ${lines.length === 1 ? "is" : "are"} drawn, those that are largest on the path${given.length < 40 ? "; all others are zero" : ""}.` : `All ${figure(of)} coefficients are drawn.`;
    const grid = weights > alphas.length ? ` ${figure(alphas.length)} of ${figure(weights)} weights.` : "";
    node.append(el("p", { class: "muted" }, `${shown}${grid} ${what.top ? "Above: how many are not zero. " : ""}Coefficients are per unit of their features. ${isNumber(rounds) ? `All weights${best ? " and folds" : ""} took ${count(rounds, "round", "rounds")}, ${bits(up)} from sites and ${bits(down)} to them.` : ""}`));
    return [node];
  }
}

const weightMarks = (curve) => [
  isNumber(curve.alpha_min) ? { x: curve.alpha_min, short: "min", label: `min: \u03b1 = ${figure(curve.alpha_min, 3)}`, dash: null } : null,
  isNumber(curve.alpha_1se) && curve.alpha_1se !== curve.alpha_min ? { x: curve.alpha_1se, short: "1se", label: `1se: \u03b1 = ${figure(curve.alpha_1se, 3)}`, dash: "5 4" } : null].filter(Boolean);

// How many coefficients are not zero at the weight nearest to a tick.
function nonzeroAt({ alphas, nonzero }) {
  return (value) => {
    let best = 0;
    alphas.forEach((alpha, i) => { if (Math.abs(Math.log(alpha / value)) < Math.abs(Math.log(alphas[best] / value))) best = i; });
    return figure(nonzero[best]);
  };
}
