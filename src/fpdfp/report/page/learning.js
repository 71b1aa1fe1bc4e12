// Learning curves: how good the model was after rounds, on rows that had no part in the fit, or at sites.
const LEARNT = {
  rounds: { label: "Rounds", axis: "rounds", whole: true, of: (found) => found.rounds, tick: (value) => figure(value), say: (value) => figure(value) },
  bits: { label: "Total bits", axis: "all bits, up and down", of: (found) => found.bits_up.map((up, i) => up + found.bits_down[i]), tick: (value) => bits(value), say: (value) => bits(value) },
  bits_up: { label: "Total bits up", axis: "all bits that sites send", of: (found) => found.bits_up, tick: (value) => bits(value), say: (value) => bits(value) },
};

class LearningCurves {
  constructor() {
    this.measure = null;
    this.against = "rounds";
    this.xLog = null; // as it fits, until the reader chooses
    this.zooms = new Map();
  }

  update(runs, series) {
    const known = runs.filter((run) => run.learning_curve && Object.keys(run.learning_curve.overall).length);
    byId("learning").hidden = known.length === 0;
    const text = JSON.stringify(known.map((run) => [run.id, run.label, run.learning_curve]));
    if (this.seen === text) return;
    this.seen = text;
    if (known.length === 0) return;
    const measures = [...new Set(known.flatMap((run) => Object.keys(run.learning_curve.overall)))];
    if (!measures.includes(this.measure)) [this.measure] = measures;
    const chart = new Chart({ key: "learning", title: "Score after each round", wide: true, log: false, dots: true, many: "Curve", ...ofLearning(this) }, this.zooms);
    const draw = () => {
      const lines = known.length === 1 ? this.ofSites(known[0]) : this.ofRuns(known, series);
      chart.what.short = this.measure;
      const against = LEARNT[this.against];
      const ends = lines.map((line) => line.x.at(-1)).filter((end) => end > 0);
      const xLog = this.xLog ?? Math.max(...ends) >= 8 * Math.min(...ends);
      axis.press(xLog);
      why.hidden = !xLog;
      chart.update(against, `${this.measure} ${this.against}`, xLog, [...new Set(lines.map((line) => line.series))], lines);
      legend.replaceChildren(...[...new Set(lines.map((line) => line.series))].map((one) => el("span", {}, swatch(one), one.label)));
    };
    const legend = el("div", { class: "labels" }), why = el("p", { class: "hint muted" }, "The start, at 0, is not on a logarithmic axis.");
    const axis = segments("Horizontal axis", [["false", "linear"], ["true", "log"]], "false", (value) => { this.xLog = value === "true"; draw(); });
    byId("learning-body").replaceChildren(
      el("div", { class: "bar" }, picker("Score", measures.map((name) => [name, name]), this.measure, (value) => { this.measure = value; draw(); }),
        segments("Against", Object.entries(LEARNT).map(([key, { label }]) => [key, label]), this.against, (value) => { this.against = value; draw(); }), axis),
      legend, chart.node, why, el("div", {}, ...known.map((run) => el("p", { class: "hint muted" }, [known.length > 1 ? `${run.label}: ` : "", capital(run.learning_curve.notes.join("; ")), "."].join("")))));
    draw();
  }

  ofRuns(known, series) {
    return known.map((run) => this.line(run.id, series.find((one) => one.runs.includes(run)), run, run.learning_curve.overall));
  }

  ofSites(run) {
    const found = run.learning_curve, sites = found.sites.length > 1 ? found.sites : [];
    return [["all sites", found.overall], ...sites.map((site) => [site.name, site.measures])]
      .map(([name, measures], place) => this.line(name, lineStyle(place, name), run, measures));
  }

  line(id, series, run, measures) {
    const found = run.learning_curve, nothing = found.rounds.map(() => null);
    const name = series.runs.length > 1 ? `${series.label}, seed ${figure(run.seed)}` : series.label;
    return { id, name, series, found, rounds: found.rounds, x: LEARNT[this.against].of(found), y: measures[this.measure] || nothing };
  }
}

const ofLearning = (view) => ({
  say: (value) => figure(value, 4),
  facts: (line, i) => [["round", figure(line.rounds[i])], ["bits up", bits(line.found.bits_up[i])], ["bits down", bits(line.found.bits_down[i])]],
  head: () => ["Round", "Bits up", "Bits down", capital(view.measure)],
  row: (line, i) => [figure(line.rounds[i]), bits(line.found.bits_up[i]), bits(line.found.bits_down[i]), figure(line.y[i], 4)],
});
