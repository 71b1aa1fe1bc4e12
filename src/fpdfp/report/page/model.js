// The coefficients of a linear model, and the graph of its features on a circle.
const sign = (value) => (value > 0 ? "positive" : value < 0 ? "negative" : "zero");

class Model {
  constructor() {
    this.run = null;
    this.row = 0;
    this.all = false;
    this.at = null;
    this.graph = el("div", { class: "graph", tabindex: "0", role: "application", "aria-roledescription": "graph" });
    this.readout = el("p", { class: "readout muted", role: "status" });
    byId("graph").append(this.graph, this.readout);
    this.graph.addEventListener("keydown", (event) => {
      const { order } = this.model, now = order.indexOf(this.at), last = order.length - 1;
      const next = { ArrowRight: now < last ? now + 1 : 0, ArrowLeft: now > 0 ? now - 1 : last, Home: 0, End: last }[event.key];
      if (next !== undefined) { this.show(order[next]); event.preventDefault(); }
      if (event.key === "Escape") this.show(null);
    });
    this.graph.addEventListener("pointerleave", () => this.show(null));
    onWidth(this.graph, () => this.draw());
  }

  update(runs) {
    // Bars of coefficients in different units mislead where a table has their errors.
    const inTable = (run) => run.summary && run.summary.columns.length > 1 && run.model.edges.length === 0;
    const models = runs.filter((run) => run.model && !inTable(run));
    byId("model").hidden = models.length === 0;
    if (models.length === 0) return;
    const run = models.find((one) => one.id === this.run) || models[0];
    const text = JSON.stringify([models.map((one) => [one.id, one.label, one.seed]), run.id, run.model]);
    if (this.seen === text) return;
    this.seen = text;
    this.models = models;
    this.choose(run.id);
  }

  choose(id) {
    const run = this.models.find((one) => one.id === id);
    this.run = id;
    this.model = run.model;
    this.row = Math.min(this.row, this.model.values.length - 1);
    const label = (one) => (isNumber(one.seed) && this.models.filter((other) => other.label === one.label).length > 1 ? `${one.label}, seed ${one.seed}` : one.label);
    byId("model-controls").replaceChildren(...[
      this.models.length > 1 ? picker("Run", this.models.map((one) => [one.id, label(one)]), id, (value) => this.choose(value)) : null,
      this.model.values.length > 1 ? picker("Class", this.model.classes.map((name, i) => [String(i), name]), String(this.row), (value) => { this.row = Number(value); this.fill(); }) : null].filter(Boolean));
    this.fill();
  }

  get values() { return this.model.values[this.row]; }

  fill() {
    this.at = null;
    byId("graph-card").hidden = this.model.edges.length === 0;
    this.draw();
    this.list();
  }

  draw() {
    const width = this.graph.clientWidth;
    if (!width || !this.model || this.model.edges.length === 0) return;
    const { features, edges, order } = this.model, { values } = this, n = features.length;
    const size = Math.min(width, 640), named = n <= 60;
    const letters = size < 420 ? 12 : 18, font = Math.max(8, Math.min(size < 420 ? 10.5 : 11.5, (size * 2.1) / Math.max(n, 12)));
    const longest = named ? Math.max(...features.map((name) => Math.min(name.length, letters))) * font * 0.56 : 0;
    const radius = Math.max(60, size / 2 - longest - 20);
    const place = new Map(order.map((feature, i) => [feature, (2 * Math.PI * i) / n - Math.PI / 2]));
    const at = (feature, r) => [Math.cos(place.get(feature)) * r, Math.sin(place.get(feature)) * r];
    const largest = Math.max(...values.map(Math.abs)) || 1, heaviest = Math.max(...edges.map((edge) => Math.abs(edge[2]))) || 1;
    const most = Math.max(3, Math.min(13, (1.5 * Math.PI * radius) / n));
    const nodes = edges.map(([i, j, weight]) => {
      const [a, b] = at(i, radius), [c, d] = at(j, radius), strength = Math.abs(weight) / heaviest;
      const pull = 0.32;
      return svg("path", { class: "edge", "data-ends": `${i} ${j}`, d: `M${a.toFixed(1)} ${b.toFixed(1)}Q${((a + c) * 0.5 * pull).toFixed(1)} ${((b + d) * 0.5 * pull).toFixed(1)} ${c.toFixed(1)} ${d.toFixed(1)}`,
        "stroke-width": (0.6 + 2.2 * strength).toFixed(2), "stroke-opacity": (0.16 + 0.55 * strength).toFixed(2) });
    });
    for (const feature of order) {
      const [x, y] = at(feature, radius), value = values[feature];
      nodes.push(svg("circle", { class: `node ${sign(value)}`, "data-feature": feature, cx: x.toFixed(1), cy: y.toFixed(1), r: value === 0 ? Math.min(3.5, most) : (most * (0.34 + 0.66 * Math.sqrt(Math.abs(value) / largest))).toFixed(1),
        onpointerenter: () => this.show(feature), onpointerdown: () => this.show(feature) }));
      if (named) {
        const [tx, ty] = at(feature, radius + most + 5), angle = (place.get(feature) * 180) / Math.PI, left = Math.cos(place.get(feature)) < -1e-9;
        nodes.push(svg("text", { class: sign(value) === "zero" ? "zero" : null, "data-feature": feature, "font-size": font.toFixed(1), "text-anchor": left ? "end" : "start", "dominant-baseline": "central",
          transform: `translate(${tx.toFixed(1)} ${ty.toFixed(1)}) rotate(${(left ? angle + 180 : angle).toFixed(1)})` }, cut(features[feature], letters)));
      }
    }
    const half = size / 2;
    this.graph.replaceChildren(svg("svg", { viewBox: `${-half} ${-half} ${size} ${size}`, "aria-hidden": "true", focusable: "false", style: { "max-width": `${size}px`, margin: "0 auto" } }, ...nodes));
    const more = this.model.edges_in_all > edges.length ? ` of ${figure(this.model.edges_in_all)}, the heaviest among the features shown` : "";
    this.summary = `${count(n, "feature", "features")}, ${count(edges.length, "edge", "edges")}${more}.`;
    this.graph.setAttribute("aria-label", `Graph of features. ${this.summary} Arrow keys go round the circle.`);
    this.show(this.at);
  }

  show(feature) {
    this.at = feature;
    const near = new Set();
    this.graph.classList.toggle("busy", feature !== null);
    for (const edge of this.graph.querySelectorAll(".edge")) {
      const ends = edge.dataset.ends.split(" ").map(Number), joined = feature !== null && ends.includes(feature);
      edge.classList.toggle("near", joined);
      if (joined) ends.forEach((end) => near.add(end));
    }
    for (const node of this.graph.querySelectorAll("[data-feature]")) {
      const own = Number(node.dataset.feature);
      node.classList.toggle("near", near.has(own));
      node.classList.toggle("chosen", own === feature);
    }
    const { features } = this.model;
    if (feature === null) {
      this.readout.replaceChildren(el("span", { class: "key positive" }), "above 0", el("span", { class: "key negative" }), "below 0", el("span", { class: "key zero" }), `zero. ${this.summary || ""}`);
      return;
    }
    near.delete(feature);
    const names = [...near].map((other) => features[other]);
    const rest = names.length > 8 ? `, and ${names.length - 8} more` : "";
    this.readout.textContent = `${features[feature]}: ${figure(this.values[feature], 4)}. ${names.length ? `Joined to ${names.slice(0, 8).join(", ")}${rest}.` : "Joined to nothing."}`;
  }

  list() {
    const { features, of } = this.model, { values } = this, few = 24;
    const zeros = this.model.zeros[this.row], intercept = this.model.intercepts[this.row];
    const order = values.map((_, i) => i).filter((i) => values[i] !== 0).sort((a, b) => Math.abs(values[b]) - Math.abs(values[a]));
    const largest = order.length ? Math.abs(values[order[0]]) : 1;
    const shown = this.all ? order : order.slice(0, few);
    const rows = shown.map((i) => {
      const half = `${(50 * Math.abs(values[i])) / largest}%`, kind = sign(values[i]);
      return el("li", { title: `${features[i]}: ${values[i]}` }, el("span", { class: "label" }, features[i]),
        el("span", { class: "track", "aria-hidden": "true" }, el("i", { class: kind, style: { width: half, [kind === "positive" ? "left" : "right"]: "50%" } })),
        el("span", { class: "value" }, digits(values[i], 3)));
    });
    const summary = [`${figure(zeros)} of ${count(of, "coefficient is", "coefficients are")} zero, to within ${power(-8)} of the largest`];
    if (this.model.standardized !== null) summary.push(`${this.model.standardized ? "per standard deviation" : "per unit"} of each feature`);
    if (isNumber(intercept)) summary.push(`intercept ${figure(intercept, 4)}`);
    if (of > features.length) summary.push(`the ${features.length} largest are here`);
    const button = order.length > few ? el("button", { type: "button", class: "small", "aria-expanded": String(this.all), onclick: () => { this.all = !this.all; this.list(); byId("coefficients").querySelector("button").focus(); } },
      this.all ? "Show fewer" : `Show all ${order.length}`) : null;
    const [negative, positive] = this.model.between;
    const between = positive === undefined ? "" : el("p", {}, "Values above 0 speak for ", el("b", {}, positive), ", values below 0 for ", el("b", {}, negative), ".");
    byId("coefficients").replaceChildren(between, el("p", { class: "muted" }, `${summary.join("; ")}.`), el("ul", { class: "coefficients", "aria-label": "Coefficients, the largest first" }, ...rows), button ?? "");
  }
}
