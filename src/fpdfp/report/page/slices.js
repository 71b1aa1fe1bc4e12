// Volumes, slice by slice: the truth, the reconstruction and the error beside each other.
const AXES = [
  { name: "sagittal", across: 1, up: 2 }, { name: "coronal", across: 0, up: 2 }, { name: "axial", across: 0, up: 1 },
];

// Colours as the canvas keeps them, by shades from 0 to 255: greys, and for errors black at 0, orange above, blue below.
const pixel = ([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
const shade = (share) => (share <= 0 ? 0 : share >= 1 ? 255 : Math.round(255 * share));
const ABOVE = [[0, 0, 0], [213, 94, 0], [255, 196, 107]], BELOW = [[0, 0, 0], [0, 114, 178], [127, 208, 255]];
const GREYS = Uint32Array.from({ length: 256 }, (_, i) => pixel([i, i, i]));
const DIVERGING = Uint32Array.from({ length: 256 }, (_, i) => {
  const value = (i - 127.5) / 127.5, colours = value < 0 ? BELOW : ABOVE, size = Math.abs(value) * 2, base = size > 1 ? 1 : 0;
  return pixel(colours[base].map((from, part) => Math.round(from + (size - base) * (colours[base + 1][part] - from))));
});

class Volume {
  constructor({ shape, low, high, data }, width) {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    this.numbers = width === 16 ? new Uint16Array(bytes.buffer) : bytes;
    this.shape = shape;
    this.low = low;
    this.high = high;
    this.step = (high - low) / (2 ** width - 1);
    this.strides = [shape[1] * shape[2], shape[2], 1];
  }

  at(place) { return this.low + this.step * this.numbers[place]; }
}

class Slices {
  constructor() {
    this.axis = 2;
    this.slice = null;
    this.windows = null;
    this.run = null;
    this.decoded = new Map();
    const knob = (name, key, draw) => {
      const output = el("output", {});
      const input = el("input", { type: "range", min: 0, max: 1000, value: 500, "data-knob": key, oninput: () => draw(Number(input.value)) });
      return { input, output, label: el("label", { class: key }, name, output, input) };
    };
    this.knobs = {
      slice: knob("Slice", "slice", (value) => { this.slice = value; this.draw(); }),
      level: knob("Level", "level", (value) => { this.windows.level = this.low + (value / 1000) * this.span; this.draw(); }),
      window: knob("Window", "window", (value) => { this.windows.width = Math.max(1e-3, (value / 1000) ** 2 * 2) * this.span; this.draw(); }),
      error: knob("Error scale", "error", (value) => { this.windows.error = Math.max(1e-3, (value / 1000) ** 2) * this.span; this.draw(); }),
    };
    this.controls = el("div", { class: "bar" });
    this.note = el("p", { class: "note", hidden: true });
    this.panels = el("div", { class: "panels" });
    this.panel = { truth: this.makePanel("Truth", "grey"), image: this.makePanel("Reconstruction", "grey"), error: this.makePanel("Error", "error") };
    this.readout = el("p", { class: "readout muted" });
    this.readout.textContent = "Drag over a picture: to the side for the window, up and down for the level.";
    this.figures = el("div", { class: "figures" });
    this.voice = el("div", { class: "hidden-text", role: "status" });
    this.quality = el("div", { class: "quality" });
    this.numbers = numbersOf("Quality of the slices in numbers", () => this.table());
    byId("slices-body").append(this.controls, this.note, el("div", { class: "card" }, this.panels,
      el("div", { class: "knobs" }, this.knobs.slice.label, this.knobs.window.label, this.knobs.level.label, this.knobs.error.label),
      this.figures, this.voice, this.readout, this.quality, this.numbers));
    onWidth(this.quality, () => this.drawQuality());
  }

  makePanel(name, kind) {
    const canvas = el("canvas", { role: "img" });
    const ends = [el("span", {}), el("span", {})];
    const figureNode = el("figure", { "data-panel": name.toLowerCase() }, el("figcaption", {}, name), canvas,
      el("div", { class: "scale" }, ends[0], el("i", { class: kind }), ends[1]));
    this.listen(canvas, kind === "error");
    return { name, canvas, ends, node: figureNode };
  }

  // Dragging to the side changes the window, up and down the level; on the error its scale.
  listen(canvas, isError) {
    let start = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      start = { x: event.clientX, y: event.clientY, ...this.windows };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (start) {
        const dx = (event.clientX - start.x) / canvas.clientWidth, dy = (event.clientY - start.y) / canvas.clientHeight;
        if (isError) this.windows.error = Math.min(this.span, Math.max(1e-6 * this.span, start.error * 4 ** dx));
        else {
          this.windows.width = Math.min(2 * this.span, Math.max(1e-3 * this.span, start.width * 4 ** dx));
          this.windows.level = Math.min(this.high, Math.max(this.low, start.level + dy * this.span));
        }
        this.draw();
      } else {
        this.point(event, canvas);
      }
    });
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { start = null; });
    canvas.addEventListener("dblclick", () => this.resetWindow());
  }

  update(found, runs) {
    const place = (one) => runs.findIndex((run) => run.id === one.run);
    const good = found ? found.runs.filter((one) => place(one) >= 0).sort((a, b) => place(a) - place(b)) : [];
    byId("slices").hidden = good.length === 0;
    if (good.length === 0) return;
    this.found = found;
    this.runs = good.map((one) => ({ ...one, info: runs.find((run) => run.id === one.run) }));
    for (const name of this.decoded.keys()) if (!found.volumes[name]) this.decoded.delete(name);
    const notes = [];
    if (found.factor > 1) notes.push(`The volumes are too large for this page: a voxel here is the mean of ${found.factor} \u00d7 ${found.factor} \u00d7 ${found.factor} of theirs. PSNR and SSIM are of the whole volumes.`);
    else if (found.bits < 16) notes.push("The volumes are shown with 256 shades, so that they fit into this page. PSNR and SSIM are of the whole volumes.");
    this.note.textContent = notes.join(" ");
    this.note.hidden = notes.length === 0;
    this.choose(this.runs.some((one) => one.run === this.run) ? this.run : this.runs[0].run);
  }

  volume(name) {
    if (name === null) return null;
    if (!this.decoded.has(name)) this.decoded.set(name, new Volume(this.found.volumes[name], this.found.bits));
    return this.decoded.get(name);
  }

  choose(id) {
    const one = this.runs.find((other) => other.run === id);
    const other = this.run !== id;
    this.run = id;
    this.one = one;
    this.truth = this.volume(one.truth);
    this.image = this.volume(one.image);
    const base = this.truth || this.image;
    this.low = base.low;
    this.high = base.high;
    this.span = base.high - base.low || 1;
    this.panels.replaceChildren(...(this.truth ? ["truth", "image", "error"] : ["image"]).map((name) => this.panel[name].node));
    this.panels.classList.toggle("single", !this.truth);
    this.knobs.error.label.hidden = !this.truth;
    this.quality.hidden = this.numbers.hidden = !this.truth;
    const label = ({ info }) => (isNumber(info.seed) && this.runs.filter((another) => another.info.label === info.label).length > 1 ? `${info.label}, seed ${info.seed}` : info.label);
    if (other || this.offered !== this.runs.map(label).join()) {
      this.offered = this.runs.map(label).join();
      this.axisChoice = segments("Axis", AXES.map(({ name }, i) => [String(i), name]).reverse(), String(this.axis), (value) => { this.axis = Number(value); this.slice = null; this.turn(); });
      this.controls.replaceChildren(...[
        this.runs.length > 1 ? picker("Run", this.runs.map((another) => [another.run, label(another)]), id, (value) => this.choose(value)) : null,
        this.axisChoice, el("button", { type: "button", class: "small", onclick: () => this.resetWindow() }, "Reset window")].filter(Boolean));
    }
    if (!this.windows) this.windows = this.usual();
    this.turn();
  }

  usual() { return { level: (this.low + this.high) / 2, width: this.span, error: 0.25 * this.span }; }

  resetWindow() { this.windows = this.usual(); this.draw(); }

  turn() {
    const length = this.image.shape[this.axis];
    this.slice = this.slice === null ? length >> 1 : Math.min(this.slice, length - 1);
    this.knobs.slice.input.max = length - 1;
    this.numbers.renew();
    this.draw();
  }

  // Where the voxels of a slice are, row by row from the top; up on the page is up in the volume.
  places() {
    const { across, up } = AXES[this.axis], { shape, strides } = this.image;
    const start = this.slice * strides[this.axis], found = new Uint32Array(shape[across] * shape[up]);
    let i = 0;
    for (let row = shape[up] - 1; row >= 0; row--) {
      for (let column = 0; column < shape[across]; column++) found[i++] = start + row * strides[up] + column * strides[across];
    }
    return found;
  }

  draw() {
    const { across, up } = AXES[this.axis], { shape } = this.image;
    const { level, width, error } = this.windows, floor = level - width / 2;
    const grey = (volume) => (place) => GREYS[shade((volume.at(place) - floor) / width)];
    const shades = { image: grey(this.image) };
    if (this.truth) {
      shades.truth = grey(this.truth);
      shades.error = (place) => DIVERGING[shade(0.5 + (0.5 * (this.image.at(place) - this.truth.at(place))) / error)];
    }
    const places = this.places();
    for (const [name, colour] of Object.entries(shades)) {
      const { canvas, ends } = this.panel[name];
      canvas.width = shape[across];
      canvas.height = shape[up];
      const picture = new ImageData(shape[across], shape[up]);
      const pixels = new Uint32Array(picture.data.buffer);
      for (let i = 0; i < places.length; i++) pixels[i] = colour(places[i]);
      canvas.getContext("2d").putImageData(picture, 0, 0);
      canvas.setAttribute("aria-label", `${this.panel[name].name}, ${AXES[this.axis].name} slice ${this.slice + 1} of ${shape[this.axis]}`);
      const [from, to] = name === "error" ? [-error, error] : [floor, floor + width];
      ends[0].textContent = figure(from, 2);
      ends[1].textContent = figure(to, 2);
    }
    this.showKnobs();
    this.showFigures();
    this.drawQuality();
  }

  showKnobs() {
    const { slice, level, window: wide, error } = this.knobs, length = this.image.shape[this.axis];
    const set = (knob, value, text) => { knob.input.value = Math.round(value); knob.output.textContent = text; knob.input.setAttribute("aria-valuetext", text); };
    set(slice, this.slice, `${this.slice + 1} of ${length}`);
    set(level, (1000 * (this.windows.level - this.low)) / this.span, figure(this.windows.level, 3));
    set(wide, 1000 * Math.sqrt(this.windows.width / this.span / 2), figure(this.windows.width, 3));
    set(error, 1000 * Math.sqrt(this.windows.error / this.span), `\u00b1${figure(this.windows.error, 2)}`);
  }

  // Where volumes are made coarser, the slice of the volume itself that is in the middle of what is shown.
  get own() { return Math.min(this.one.shape[this.axis] - 1, this.slice * this.found.factor + (this.found.factor >> 1)); }

  showFigures() {
    if (!this.truth) { this.figures.replaceChildren(); return; }
    const db = (value) => (isNumber(value) ? `${value.toFixed(2)} dB` : "exact"), plain = (value) => (isNumber(value) ? value.toFixed(4) : "\u2013");
    const { psnr, ssim } = this.one, mean = (values) => { const good = values.filter(isNumber); return good.length ? good.reduce((sum, value) => sum + value, 0) / good.length : null; };
    const item = (name, value) => el("div", {}, el("b", {}, value), " ", el("span", {}, name));
    const here = [psnr[this.axis][this.own], ssim[this.axis][this.own]];
    this.figures.replaceChildren(item("PSNR of this slice", db(here[0])), item("SSIM of this slice", plain(here[1])),
      item("mean PSNR", db(mean(psnr[this.axis]))), item("mean SSIM", plain(mean(ssim[this.axis]))));
    this.voice.textContent = `Slice ${this.slice + 1}: PSNR ${db(here[0])}, SSIM ${plain(here[1])}`;
  }

  drawQuality() {
    if (!this.truth || this.quality.hidden || !this.quality.clientWidth) return;
    const titles = [["PSNR by slice, dB", this.one.psnr[this.axis], "c0"], ["SSIM by slice", this.one.ssim[this.axis], "c2"]];
    this.quality.replaceChildren(...titles.map(([title, values, colour]) => this.small(title, values, colour)));
  }

  small(title, values, colour) {
    const narrow = this.quality.clientWidth < 560, width = narrow ? this.quality.clientWidth : (this.quality.clientWidth - 14) / 2, height = 120;
    const good = values.filter(isNumber), [low, high] = padded(Math.min(...good), Math.max(...good), false, 0.08);
    const left = 44, right = width - 10, sx = scale(0, Math.max(1, values.length - 1), left, right, false), sy = scale(low, high, height - 22, 8, false);
    const path = values.map((value, i) => (isNumber(value) ? `${i && isNumber(values[i - 1]) ? "L" : "M"}${sx(i).toFixed(1)} ${sy(value).toFixed(1)}` : "")).join("");
    const nodes = linearTicks(low, high, 3).flatMap((value) => [svg("line", { class: "grid", x1: left, x2: right, y1: sy(value), y2: sy(value) }), svg("text", { x: left - 6, y: sy(value) + 4, "text-anchor": "end" }, figure(value, 3))]);
    nodes.push(svg("line", { class: "cross", x1: sx(this.own), x2: sx(this.own), y1: 8, y2: height - 22 }), svg("path", { class: `curve ${colour}`, d: path || "M0 0" }));
    if (isNumber(values[this.own])) nodes.push(svg("circle", { class: `spot ${colour}`, cx: sx(this.own), cy: sy(values[this.own]), r: 4 }));
    nodes.push(svg("text", { x: left, y: height - 6 }, "1"), svg("text", { x: right, y: height - 6, "text-anchor": "end" }, String(values.length)));
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true", focusable: "false" }, ...nodes);
    const plot = el("div", { class: "plot", style: { cursor: "pointer" }, onclick: (event) => {
      const place = Math.round(sx.back(event.clientX - picture.getBoundingClientRect().left));
      this.slice = Math.floor(Math.max(0, Math.min(values.length - 1, place)) / this.found.factor);
      this.draw();
    } }, picture);
    return el("div", {}, el("span", { class: "muted", style: { "font-size": "13px" } }, title), plot);
  }

  // Say what is under the pointer.
  point(event, canvas) {
    const area = canvas.getBoundingClientRect(), { across, up } = AXES[this.axis], { shape, strides } = this.image;
    const column = Math.min(shape[across] - 1, Math.max(0, Math.floor(((event.clientX - area.left) / area.width) * shape[across])));
    const row = shape[up] - 1 - Math.min(shape[up] - 1, Math.max(0, Math.floor(((event.clientY - area.top) / area.height) * shape[up])));
    const where = [0, 0, 0];
    where[this.axis] = this.slice;
    where[across] = column;
    where[up] = row;
    const place = where.reduce((sum, value, axis) => sum + value * strides[axis], 0), image = this.image.at(place);
    const truth = this.truth ? `truth ${figure(this.truth.at(place), 4)}, ` : "";
    const error = this.truth ? `, error ${figure(image - this.truth.at(place), 3)}` : "";
    this.readout.textContent = `Voxel (${where.join(", ")}): ${truth}reconstruction ${figure(image, 4)}${error}`;
  }

  table() {
    const { psnr, ssim } = this.one;
    return table(["Slice", "PSNR, dB", "SSIM"], psnr[this.axis].map((value, i) => [String(i + 1), isNumber(value) ? value.toFixed(2) : "exact", figure(ssim[this.axis][i], 4)]), 1);
  }
}
