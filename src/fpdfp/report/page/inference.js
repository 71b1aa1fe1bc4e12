// The coefficients of a fit with their errors, and how much sites differ.
class Inference extends View {
  constructor() {
    super("inference", ["summary", "heterogeneity"]);
    this.coefficient = null;
  }

  fill(run) { return [run.summary && this.summary(run.summary), ...(run.heterogeneity ? this.differences(run.heterogeneity) : [])]; }

  summary({ title, formula, facts, notes, level, refused, names, columns, of, sites }) {
    const cell = (name, value) => (name === "p" ? chance(value) : name === "z" || name === "t" ? (isNumber(value) ? value.toFixed(2).replace("-", MINUS) : "\u2013") : digits(value));
    const rows = names.map((name, i) => [name, ...columns.map((column) => cell(column.name, column.values[i]))]);
    const limited = of > names.length ? [`${figure(names.length)} of ${figure(of)} coefficients are shown, those with the largest ${columns.length > 1 ? "statistics" : "values"}.`] : [];
    return el("div", { class: "card", id: "summary-card" }, el("h3", {}, title), formula ? el("p", { class: "formula" }, formula) : null,
      scrolled("Coefficients with their errors", table(["", ...columns.map((column) => column.name)], rows, 1)),
      ...notes.map((note) => el("p", { class: refused ? "note" : "muted" }, capital(note) + (isNumber(level) ? `; intervals at ${percent(level)}` : ""))),
      ...limited.map((text) => el("p", { class: "muted" }, text)),
      el("dl", { class: "facts" }, ...facts.flatMap(([name, text]) => [el("dt", {}, name || "fit"), el("dd", {}, text)])),
      sites.length ? el("details", {}, el("summary", {}, "Rows of each site"),
        scrolled("Rows of each site", table(["Site", "Rows used", "Left out"], sites.map(([name, ...counts]) => [name, ...counts.map((one) => figure(one))]), 1))) : null);
  }

  differences(found) {
    const { coefficients, of } = found;
    if (coefficients.length === 0) return [];
    const rows = coefficients.map((one) => [one.name, figure(one.sites_in_all), plain(one.q), figure(one.df), chance(one.p), isNumber(one.i_squared) ? `${Math.round(100 * one.i_squared)} %` : "\u2013", plain(one.tau_squared)]);
    const card = el("div", { class: "card", id: "heterogeneity-card" }, el("h3", {}, "Do sites differ?"),
      scrolled("How much coefficients differ between sites", table(["", "Sites", "Cochran\u2019s Q", "df", "p", "I\u00b2", "\u03c4\u00b2"], rows, 1)),
      of > rows.length ? el("p", { class: "muted" }, `${figure(rows.length)} of ${figure(of)} coefficients are shown, those with the smallest p values.`) : null,
      el("p", { class: "muted" }, "Each site\u2019s own coefficients are one Newton step from the common ones; for least squares that is the site\u2019s own fit. With few sites Q finds only large differences."));
    const first = coefficients.find((one) => one.name !== "Intercept") || coefficients[0];
    if (!coefficients.some((one) => one.name === this.coefficient)) this.coefficient = first.name;
    const body = el("div", {});
    const draw = () => body.replaceChildren(...this.forest(found, coefficients.find((one) => one.name === this.coefficient)));
    draw();
    return [el("div", { class: "card", id: "forest-card" }, el("h3", {}, "Coefficient at each site"),
      picker("Coefficient", coefficients.map((one) => [one.name, one.name]), this.coefficient, (name) => { this.coefficient = name; draw(); }), body), card];
  }

  forest({ level, exponentiate }, one) {
    const pooled = [["fixed effect", one.fixed], ["random effects", one.random]].filter(([, ends]) => ends.length === 3)
      .map(([label, [value, lower, upper]]) => ({ label, value, lower, upper, pooled: true }));
    const rows = [...one.sites.map(([label, value, lower, upper, weight]) => ({ label, value, lower, upper, weight })), ...pooled].filter((row) => isNumber(row.value));
    const [below, above] = one.prediction;
    const said = [`${exponentiate ? `exp(${one.name})` : one.name}, intervals at ${percent(level)}`,
      `Q = ${plain(one.q)} on ${figure(one.df)} df, p ${one.p < 0.001 ? "" : "= "}${chance(one.p)}`, `I\u00b2 = ${Math.round(100 * one.i_squared)} %`, `\u03c4\u00b2 = ${plain(one.tau_squared)}`,
      isNumber(below) && isNumber(above) ? `a further site is expected from ${digits(below, 3)} to ${digits(above, 3)}` : ""].filter(Boolean).join("; ");
    const cutOff = one.sites_in_all > one.sites.length ? el("p", { class: "muted" }, `${figure(one.sites.length)} of ${figure(one.sites_in_all)} sites are shown, those with the largest weights.`) : null;
    return [forestPlot(`${one.name} at each site`, rows, level, { log: exponentiate, zero: exponentiate ? 1 : 0 }), el("p", { class: "muted" }, said), cutOff].filter(Boolean);
  }
}
