// Who holds what: a bar for each client, in the colours of its labels.
class Clients {
  constructor() {
    this.chosen = 0;
    this.shares = false;
    this.at = null;
    this.svg = svg("svg", { "aria-hidden": "true", focusable: "false" });
    this.plot = el("div", { class: "plot", tabindex: "0", role: "application", "aria-roledescription": "bar chart" }, this.svg);
    this.readout = el("p", { class: "readout muted", role: "status" });
    this.labels = el("p", { class: "labels" });
    this.numbers = numbersOf("Clients in numbers", () => this.table());
    byId("clients-body").append(this.labels, this.plot, this.readout, this.numbers);
    this.plot.addEventListener("keydown", (event) => {
      const last = this.data.names.length - 1, now = this.at ?? -1;
      const next = { ArrowRight: Math.min(last, now + 1), ArrowLeft: Math.max(0, now - 1), Home: 0, End: last }[event.key];
      if (next !== undefined) { this.show(next); event.preventDefault(); }
    });
    const find = (event) => {
      const x = event.clientX - this.svg.getBoundingClientRect().left;
      const place = Math.floor((x - this.left) / this.step);
      this.show(place >= 0 && place < this.data.names.length ? place : null);
    };
    this.plot.addEventListener("pointermove", find);
    this.plot.addEventListener("pointerdown", find);
    this.plot.addEventListener("pointerleave", () => this.show(null));
    onWidth(this.plot, () => this.draw());
  }

  update(federations, runs) {
    byId("clients").hidden = federations.length === 0;
    if (federations.length === 0) return;
    this.chosen = Math.min(this.chosen, federations.length - 1);
    const text = JSON.stringify([federations.map((one) => [one.names, one.samples]), runs.map((run) => run.label), this.chosen]);
    if (this.seen === text) return;
    this.seen = text;
    this.federations = federations;
    this.units = federations.map((_, place) => (runs.some((run) => run.federation === place && run.kind === "ct") ? ["view", "views"] : ["sample", "samples"]));
    const named = (place) => [...new Set(runs.filter((run) => run.federation === place).map((run) => run.label))].join(", ");
    this.controls(federations.map((_, place) => [String(place), cut(named(place), 60)]));
    this.choose(this.chosen);
  }

  controls(options) {
    const several = options.length > 1;
    this.sharesChoice = segments("Height", [["false", "samples"], ["true", "shares"]], String(this.shares), (value) => { this.shares = value === "true"; this.draw(); });
    byId("client-controls").replaceChildren(...[
      several ? picker("Federation of", options, String(this.chosen), (value) => this.choose(Number(value))) : null, this.sharesChoice].filter(Boolean));
  }

  choose(place) {
    this.chosen = place;
    this.data = this.federations[place];
    this.unit = this.units[place];
    this.at = null;
    const { names, labels, of } = this.data;
    const samples = this.data.samples.reduce((sum, value) => sum + value, 0);
    const some = of > names.length ? ` ${figure(names.length)} of them, of all sizes, are drawn.` : "";
    this.summary = `${count(of, "client", "clients")}, ${count(samples, ...this.unit)}${some ? " among those drawn" : ""}.${some}`;
    this.sharesChoice.hidden = labels.length < 2;
    this.labels.replaceChildren(...labels.map((label, i) => el("span", { class: `label c${i % COLOURS}` },
      el("span", { class: "key", style: { background: "currentColor" } }), el("span", { style: { color: "var(--ink)" } }, label))));
    this.plot.setAttribute("aria-label", `${capital(this.unit[1])} of each client. ${this.summary} Arrow keys go from client to client.`);
    this.numbers.renew();
    this.draw();
  }

  draw() {
    const width = this.plot.clientWidth;
    if (!width || !this.data) return;
    const { names, samples, labels, counts } = this.data;
    const height = 210, left = 44, right = width - 6, top = 8, bottom = height - 36;
    const shares = this.shares && labels.length > 1;
    const most = shares ? 1 : Math.max(1, ...samples);
    const step = (right - left) / names.length, bar = Math.max(1, step - Math.min(6, step * 0.25));
    const sy = scale(0, most, bottom, top, false);
    const nodes = [];
    for (const value of linearTicks(0, most, 4)) {
      nodes.push(svg("line", { class: "grid", x1: left, x2: right, y1: sy(value), y2: sy(value) }),
        svg("text", { x: left - 7, y: sy(value) + 4, "text-anchor": "end" }, shares ? percent(value) : figure(value)));
    }
    const every = Math.ceil((Math.max(...names.map((name) => Math.min(name.length, 10))) * 7.4 + 6) / step) || 1;
    names.forEach((name, i) => {
      const group = svg("g", { class: "client" });
      const parts = labels.length ? counts[i] : [samples[i]];
      const total = parts.reduce((sum, value) => sum + value, 0);
      let base = 0;
      parts.forEach((value, label) => {
        const size = shares ? (total ? value / total : 0) : value;
        if (size > 0) group.append(svg("rect", { class: `c${label % COLOURS}`, fill: "currentColor", x: left + i * step + (step - bar) / 2, width: bar, y: sy(base + size), height: Math.max(0.5, sy(base) - sy(base + size)) }));
        base += size;
      });
      nodes.push(group);
      if (i % every === 0) nodes.push(svg("text", { x: left + (i + 0.5) * step, y: bottom + 16, "text-anchor": "middle" }, cut(name, Math.max(10, Math.floor((step * every) / 7)))));
    });
    nodes.push(svg("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }),
      svg("text", { x: (left + right) / 2, y: height - 3, "text-anchor": "middle" }, "clients"));
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("height", height);
    this.svg.replaceChildren(...nodes);
    Object.assign(this, { step, left });
    this.show(this.at);
  }

  show(place) {
    this.at = place;
    this.svg.querySelectorAll(".client").forEach((node, i) => node.setAttribute("opacity", place === null || place === i ? 1 : 0.35));
    if (place === null) { this.readout.textContent = this.summary; return; }
    const { names, samples, shares, labels, counts } = this.data;
    const parts = labels.map((label, i) => `${label}: ${figure(counts[place][i])}`).join(", ");
    const weight = isNumber(shares[place]) ? `, weight ${percent(shares[place])}` : "";
    this.readout.textContent = `${names[place]}: ${count(samples[place], ...this.unit)}${weight}${parts ? `. ${parts}` : ""}`;
  }

  table() {
    const { names, samples, shares, labels, counts } = this.data;
    return table(["Client", capital(this.unit[1]), "Weight", ...labels], names.map((name, i) =>
      [name, figure(samples[i]), percent(shares[i]), ...counts[i].map((value) => figure(value))]), 1);
  }
}
