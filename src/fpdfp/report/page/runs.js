// The table of runs: a row for each, or one for all seeds of a series.
const STATUS = { running: "running", converged: "good", finished: "good", stationary: "warn", rounding: "warn", stopped: "warn", interrupted: "warn", diverged: "bad", failed: "bad" };

const MOST_METRICS = 6;
const TITLES = {
  "Test loss": "the mean loss on rows held out, at the last evaluation", Accuracy: "the share of labels that are right, at the last evaluation",
  "Relative error": "(F(x) \u2212 F*) / |F*|", "Total bits up": "all that all clients sent, of every kind", "Total bits down": "all that the server sent, of every kind",
  Time: "that the rounds took, without evaluations", Certificate: "the relative duality gap, and the residual of the optimality conditions, primal and dual",
};

class RunsTable {
  constructor() {
    this.each = false;
    this.button = el("button", { type: "button", class: "small", "aria-pressed": "false", hidden: true, onclick: () => {
      this.each = !this.each;
      this.draw();
    } }, "Every seed");
    byId("run-controls").append(this.button);
  }

  update(runs, series) {
    this.runs = runs;
    this.series = series;
    this.button.hidden = series.length === runs.length;
    this.draw();
  }

  draw() {
    this.button.setAttribute("aria-pressed", String(this.each));
    const groups = this.each ? this.runs.map((run) => [this.series.find((one) => one.runs.includes(run)), [run]]) : this.series.map((one) => [one, one.runs]);
    const known = this.runs.some((run) => isNumber(run.error));
    const metrics = [...new Set(this.runs.flatMap((run) => Object.keys(run.ends)))].filter((name) => name !== "violation").slice(0, MOST_METRICS);
    // What is the same for all is said once.
    const methods = new Set(this.runs.map((run) => `${run.method || "\u2013"}; ${messagesText(run.messages)}`));
    const alike = this.runs.length > 1 && methods.size === 1;
    byId("runs-method").hidden = !alike;
    byId("runs-method").textContent = alike ? `All runs: ${[...methods][0]}.` : "";
    const head = ["Run", ...(alike ? [] : ["Method"]), "Status", "Rounds", "Objective", ...(known ? ["Relative error"] : []), ...metrics.map((name) => capital(words(name))), "Total bits up", "Total bits down", "Time", "Certificate"];
    byId("runs-table").replaceChildren(el("caption", { class: "hidden-text" }, "Runs with their results"),
      el("thead", {}, el("tr", {}, ...head.map((text, i) => el("th", { scope: "col", class: i > (alike ? 1 : 2) ? "number" : null, title: TITLES[text] }, text)))),
      el("tbody", {}, ...groups.map(([one, runs]) => row(one, runs, known, metrics, alike))));
  }
}

function row(one, runs, known, metrics, alike) {
  const cell = (name, main, sub, kind = "number") =>
    el("td", { class: kind, "data-name": name }, el("span", {}, main, sub ? el("span", { class: "sub" }, sub) : null));
  const of = (name) => median(runs.map((run) => run[name]));
  const [run] = runs, several = runs.length > 1;
  const parts = (way) => (several ? "" : run.traffic.filter((line) => line[way]).map((line) => `${line.kind} ${bits(line[way])}`).join("\n"));
  const seeds = several ? `median of ${runs.length} seeds` : isNumber(run.seed) ? `seed ${run.seed}` : "";
  const going = runs.some((other) => other.status === "running") && run.planned_rounds ? `of ${figure(run.planned_rounds)}` : "";
  return el("tr", { "data-run": run.id },
    el("th", { scope: "row" }, el("span", { class: "named" }, swatch(one), el("span", {}, one.label, el("span", { class: "sub" }, seeds)))),
    alike ? null : cell("Method", run.method || "\u2013", messagesText(run.messages), "wide"),
    statusCell(runs),
    cell("Rounds", figure(of("rounds")), going),
    cell("Objective", figure(of("objective"), 7)),
    known ? cell("Relative error", figure(of("error"), 3)) : null,
    ...metrics.map((name) => cell(capital(words(name)), figure(median(runs.map((run) => run.ends[name])), 4))),
    cell("Total bits up", bits(of("total_up")), parts("up"), "number bits"),
    cell("Total bits down", bits(of("total_down")), parts("down"), "number bits"),
    cell("Time", duration(of("seconds"))),
    cell("Certificate", ...certificateText(runs), "number certificate"));
}

function statusCell(runs) {
  const found = new Map();
  for (const run of runs) found.set(run.status, (found.get(run.status) || 0) + 1);
  const chips = [...found].map(([status, times]) => el("span", { class: `chip ${STATUS[status] || ""}` }, found.size > 1 ? `${times} ${status}` : status));
  // That all rounds are done needs no second sentence.
  const message = runs.length === 1 && !["finished", "running"].includes(runs[0].status) ? runs[0].message : "";
  return el("td", { class: "status", "data-name": "Status" }, el("span", {}, ...chips, message ? el("span", { class: "sub" }, message) : null));
}

function messagesText(messages) {
  const plain = (text) => text.replace(/, codec='auto'/, "").replace(/^Full\(\)$/, "full precision");
  return messages.map((text, i) => `${i ? "down" : "up"} ${plain(text)}`).join("; ");
}

function certificateText(runs) {
  const of = (name) => median(runs.map((run) => run.certificate && run.certificate[name]));
  const residual = isNumber(of("primal")) ? `residual ${figure(of("primal"), 2)}, ${figure(of("dual"), 2)}` : "";
  const violation = of("violation") > 0 ? `violation ${figure(of("violation"), 2)}` : "";
  const rest = [residual, violation].filter(Boolean).join("; ");
  return isNumber(of("relative_gap")) ? [`gap ${figure(of("relative_gap"), 2)}`, rest] : [rest || "\u2013", ""];
}

function troubles(runs) {
  const found = runs.flatMap((run) => run.trouble.map((text) => `${run.id}: ${text}`));
  for (const run of runs) {
    if (run.every > 1) found.push(`${run.label}: of ${count(run.evaluations, "evaluation", "evaluations")} one in ${run.every} is drawn.`);
  }
  return found.map((text) => el("p", { class: "note" }, text));
}
