// All curves: one chart for each quantity, one choice of what they are drawn against, one legend.
class Curves {
  constructor() {
    this.against = "round";
    this.xLog = null; // as it fits, until the reader chooses
    this.evaluations = false;
    this.off = new Set();
    this.zooms = new Map();
    this.charts = new Map();
    this.legendKey = "";
    const change = (set) => (value) => { set(value); this.draw(); };
    this.evaluationBox = el("label", {}, el("input", { type: "checkbox", onchange: (event) => { this.evaluations = event.target.checked; this.draw(); } }), "with what drawing these curves sends");
    byId("curve-controls").append(
      segments("Against", Object.entries(AGAINST).map(([key, { label }]) => [key, label]), this.against, change((value) => { this.against = value; })),
      this.axisChoice = segments("Horizontal axis", [["false", "linear"], ["true", "log"]], "false", change((value) => { this.xLog = value === "true"; })),
      this.evaluationBox, this.why = el("span", { class: "muted", id: "axis-reason", hidden: true }));
  }

  update(runs, series) {
    this.series = series.filter((one) => one.runs.some((run) => run.columns.round.length));
    this.runs = runs;
    byId("curves").hidden = this.series.length === 0;
    const metrics = [...new Set(runs.flatMap((run) => run.metrics))];
    const wanted = [];
    if (runs.some((run) => run.columns.error.some(isNumber))) {
      wanted.push({ key: "error", title: "Relative error of the objective, (F(x) \u2212 F*) / |F*|", short: "relative error", log: true });
    }
    wanted.push({ key: "objective", title: "Objective, F(x)", short: "objective", log: false });
    for (const name of metrics) wanted.push({ key: name, title: capital(words(name)), short: words(name), log: name === "violation" });
    wanted.forEach((what, place) => {
      what.wide = place === 0 || (place === wanted.length - 1 && wanted.length % 2 === 0);
      Object.assign(what, ofRounds(what.title));
      if (!this.charts.has(what.key)) this.charts.set(what.key, new Chart(what, this.zooms));
    });
    for (const [key, chart] of this.charts) {
      if (!wanted.some((what) => what.key === key)) { chart.node.remove(); this.charts.delete(key); }
    }
    wanted.forEach((what) => {
      const { node } = this.charts.get(what.key);
      node.classList.toggle("wide", what.wide);
      this.charts.get(what.key).what.wide = what.wide;
      if (!node.isConnected) byId("charts").append(node);
    });
    this.legend();
    this.draw();
  }

  // The buttons are made anew only where the series are others: whoever is on one stays there.
  legend() {
    const key = JSON.stringify(this.series.map((one) => one.full));
    if (key === this.legendKey) return;
    this.legendKey = key;
    byId("legend").replaceChildren(...this.series.map((one) => {
      const button = el("button", { type: "button", "aria-pressed": String(!this.off.has(one.key)), "data-series": one.label, onclick: () => {
        if (!this.off.delete(one.key)) this.off.add(one.key);
        button.setAttribute("aria-pressed", String(!this.off.has(one.key)));
        this.draw();
      } }, swatch(one), el("span", {}, one.full));
      return button;
    }));
  }

  draw() {
    const against = AGAINST[this.against];
    const shown = this.series.filter((one) => !this.off.has(one.key));
    const inBits = this.against.startsWith("bits");
    this.evaluationBox.hidden = !inBits || !this.runs.some((run) => run.evaluation_up || run.evaluation_down);
    const fits = longest(shown.flatMap((one) => one.runs), (run) => against.of(run, this.evaluations));
    const xLog = this.xLog ?? fits.uneven;
    this.axisChoice.press(xLog);
    this.why.hidden = !(xLog && this.xLog === null);
    this.why.textContent = `The horizontal axis is logarithmic, since the longest run goes ${figure(fits.times, 2)} times as far as the shortest; the start, at 0, is not on it.`;
    for (const [key, chart] of this.charts) {
      const lines = shown.flatMap((one) => one.runs.filter((run) => run.columns[key]).map((run) => (
        lineOf(one, run, run.columns.round, against.of(run, this.evaluations), run.columns[key]))));
      chart.update(against, this.against, xLog, shown, lines);
    }
  }
}

// What a chart says of rounds of runs.
const ofRounds = (title) => ({
  say: (value) => figure(value, 6),
  facts: ({ run, rounds }, i) => [["round", figure(rounds[i])], ["total bits up", bits(run.columns.total_up[i])],
    ["total bits down", bits(run.columns.total_down[i])], ["time", duration(run.columns.seconds[i])]],
  head: (against) => ["Round", capital(against.axis), title],
  row: (line, i, against) => [figure(line.rounds[i]), against.say(line.x[i]), figure(line.y[i], 6)],
});

const lineOf = (series, run, rounds, x, y) => (
  { id: run.id, name: series.runs.length > 1 ? `${series.label}, seed ${figure(run.seed)}` : series.label, series, run, rounds, x, y });

// Whether the longest of several runs would leave no room for the shortest; those that go on or failed do not count.
function longest(runs, along) {
  const ended = runs.filter((run) => STATUS[run.status] === "good");
  const ends = ended.map((run) => along(run).filter(isNumber).at(-1)).filter((end) => end > 0).sort((a, b) => a - b);
  const times = ends.length > 1 ? ends.at(-1) / ends[0] : 1;
  return { times, uneven: times >= 8 };
}
