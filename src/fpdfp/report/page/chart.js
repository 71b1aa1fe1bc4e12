// A chart of curves: hover, zoom, keys, and a table with the same numbers.
let charts = 0;

class Chart {
  // what: key, title, wide, logarithmic at first, say (a value in words), facts (of a point), head and row (of its table);
  // perhaps linear (there is no other scale), dots (at all points), marks (weights to mark: x, short, label, dash), top (a text above a tick), crowded (many curves: no marks at their
  // ends, names of the first ones). zooms is where the reader's choices are kept.
  constructor(what, zooms) {
    this.what = what;
    this.zooms = zooms;
    this.log = what.log;
    this.chosen = null;
    this.lines = [];
    this.series = [];
    this.clip = `clip-${charts++}`;
    this.scaleChoice = segments("Vertical axis", [["false", "linear"], ["true", "log"]], String(this.log), (value) => {
      this.log = value === "true";
      this.forget("y");
      this.draw();
    }, true);
    this.resetButton = el("button", { type: "button", class: "small reset", disabled: true, onclick: () => this.reset() }, "Reset zoom");
    this.svg = svg("svg", { "aria-hidden": "true", focusable: "false" });
    this.tip = el("div", { class: "tip", "aria-hidden": "true", hidden: true });
    this.voice = el("div", { class: "hidden-text", role: "status" });
    this.plot = el("div", { class: "plot", tabindex: "0", role: "application", "aria-roledescription": "chart" }, this.svg, this.tip);
    this.numbers = numbersOf(`${what.title} in numbers`, () => this.table());
    this.node = el("figure", { class: what.wide ? "card wide" : "card", "data-chart": what.key, style: { margin: "0" } },
      el("div", { class: "chart-head" }, el("h3", {}, what.title), el("div", {}, this.resetButton, what.linear ? null : this.scaleChoice)),
      this.plot, this.voice, this.numbers);
    this.listen();
    onWidth(this.plot, () => this.draw());
  }

  // against: one of AGAINST, or like one; xLog: whether the horizontal axis is logarithmic; lines: {id, name, series, x, y},
  // perhaps with low and high for bars.
  update(against, againstName, xLog, series, lines) {
    this.against = against;
    this.zoomKey = `${this.what.key} ${againstName}`;
    this.xLog = xLog;
    this.series = series;
    this.lines = lines;
    this.numbers.renew();
    this.draw();
  }

  get zoom() { return this.zooms.get(this.zoomKey) || {}; }

  forget(axis) {
    const { [axis]: _, ...rest } = this.zoom;
    this.zooms.set(this.zoomKey, rest);
  }

  reset() {
    this.zooms.delete(this.zoomKey);
    this.draw();
  }

  fits(value, log) { return isNumber(value) && (!log || value > 0); }

  // The least and the largest of what is drawn; for y only where x is in sight.
  extent(axis, log, within) {
    let low = Infinity, high = -Infinity;
    for (const line of this.lines) {
      for (let i = 0; i < line.x.length; i++) {
        if (!this.fits(line[axis][i], log) || !this.fits(line.x[i], this.xLog) || !isNumber(line.y[i])) continue;
        if (within && (line.x[i] < within[0] || line.x[i] > within[1])) continue;
        const bars = axis === "y" && line.low ? [line.low[i], line.high[i]] : [];
        for (const value of [line[axis][i], ...bars].filter((one) => this.fits(one, log))) {
          if (value < low) low = value;
          if (value > high) high = value;
        }
      }
    }
    return [low, high];
  }

  range(axis, log, within, air) {
    const kept = this.zoom[axis];
    if (kept && (!log || kept[1] > 0)) {
      const floor = log ? Math.max(kept[0], this.extent(axis, true)[0] || kept[1] / 1e6) : kept[0];
      if (floor < kept[1]) return [floor, kept[1]];
    }
    return padded(...this.extent(axis, log, within), log, air);
  }

  draw() {
    const width = this.plot.clientWidth;
    if (!width || !this.against) return;
    const height = width < 520 ? 230 : this.what.wide ? 340 : 250;
    const named = this.what.crowded && width >= 520;
    const box = { left: 52, right: width - (named ? 122 : 14), top: this.what.top || this.what.marks ? 30 : 10, bottom: height - 40 };
    const [x0, x1] = this.range("x", this.xLog, null, 0.015);
    const [y0, y1] = this.range("y", this.log, this.zoom.x, 0.05);
    this.box = box;
    this.sx = this.against.reversed ? scale(x1, x0, box.left, box.right, this.xLog) : scale(x0, x1, box.left, box.right, this.xLog);
    this.sy = scale(y0, y1, box.bottom, box.top, this.log);
    this.span = { x: [x0, x1], y: [y0, y1] };
    const nodes = [svg("defs", {}, svg("clipPath", { id: this.clip },
      svg("rect", { x: box.left, y: box.top - 6, width: Math.max(0, box.right - box.left + 6), height: box.bottom - box.top + 12 })))];
    for (const value of ticks(y0, y1, (box.bottom - box.top) / 48, this.log)) {
      const y = this.sy(value);
      nodes.push(svg("line", { class: "grid", x1: box.left, x2: box.right, y1: y, y2: y }),
        svg("text", { x: box.left - 7, y: y + 4, "text-anchor": "end" }, decimal(value, this.log && y1 / y0 > 1e3)));
    }
    const room = this.against === AGAINST.bits || this.against === AGAINST.bits_up ? 88 : 64;
    let rightmost = -Infinity;
    const along = ticks(x0, x1, (box.right - box.left) / room, this.xLog, this.against.whole);
    for (const value of this.against.reversed ? along.reverse() : along) {
      const x = this.sx(value);
      nodes.push(svg("line", { class: "grid", x1: x, x2: x, y1: box.top, y2: box.bottom }));
      const half = this.against.tick(value).length * 3.4;
      const at = Math.min(x, width - half);
      if (at - half > rightmost + 6) {
        nodes.push(svg("text", { x: at, y: box.bottom + 17, "text-anchor": "middle" }, this.against.tick(value)));
        if (this.what.top) nodes.push(svg("text", { x: at, y: box.top - 7, "text-anchor": "middle" }, this.what.top(value)));
        rightmost = at + half;
      }
    }
    nodes.push(svg("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }),
      svg("text", { x: (box.left + box.right) / 2, y: height - 5, "text-anchor": "middle" }, this.against.axis));
    const curves = svg("g", { "clip-path": `url(#${this.clip})` });
    for (const one of this.series) curves.append(...this.curves(one));
    if (named) nodes.push(...this.names(box));
    nodes.push(...this.marks(box));
    this.front = svg("g", {});
    this.hit = svg("rect", { class: "hit", x: box.left, y: box.top, width: Math.max(0, box.right - box.left), height: box.bottom - box.top });
    nodes.push(curves, this.front, this.hit);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("height", height);
    this.svg.replaceChildren(...nodes);
    this.resetButton.disabled = !this.zoom.x && !this.zoom.y;
    this.scaleChoice.press(this.log);
    this.plot.setAttribute("aria-label", `${this.what.title} against ${this.against.axis}, ${count(this.series.length, "series", "series")}. ` +
      "Arrow keys go from point to point and from series to series, plus and minus zoom, 0 resets.");
    this.show(this.chosen);
  }

  curves(one) {
    const lines = this.lines.filter((line) => line.series === one);
    const several = lines.length > 1;
    const mid = several ? middle(lines) : null;
    const nodes = lines.map((line) => this.curve(one, line, mid || one.faint ? "curve seed" : "curve"));
    if (this.what.dots) nodes.push(...lines.map((line) => this.dots(one, line)));
    if (mid) nodes.push(this.curve(one, mid, "curve"));
    nodes.push(...lines.filter((line) => line.low).map((line) => this.bars(one, line)));
    for (const line of this.what.crowded ? [] : mid ? [mid] : lines) {
      for (let i = line.x.length - 1; i >= 0; i--) {
        if (!this.sx.fits(line.x[i]) || !this.sy.fits(line.y[i])) continue;
        nodes.push(svg("path", { class: `mark ${one.colour}`, d: one.mark, transform: `translate(${this.sx(line.x[i]).toFixed(1)} ${this.sy(line.y[i]).toFixed(1)})` }));
        break;
      }
    }
    return nodes;
  }

  // From low to high at each point.
  bars(one, line) {
    let path = "";
    for (let i = 0; i < line.x.length; i++) {
      if (!this.sx.fits(line.x[i]) || !this.sy.fits(line.low[i]) || !this.sy.fits(line.high[i])) continue;
      const [x, low, high] = [this.sx(line.x[i]), this.sy(line.low[i]), this.sy(line.high[i])];
      path += `M${x.toFixed(1)} ${low.toFixed(1)}V${high.toFixed(1)}M${(x - 2).toFixed(1)} ${low.toFixed(1)}h4M${(x - 2).toFixed(1)} ${high.toFixed(1)}h4`;
    }
    return svg("path", { class: `${one.faint ? "bars faint" : "bars"} ${one.colour}`, d: path || "M0 0" });
  }

  // A path of points alone, which round ends make dots of.
  dots(one, line) {
    const seen = line.x.map((_, i) => i).filter((i) => this.sx.fits(line.x[i]) && this.sy.fits(line.y[i]));
    return svg("path", { class: `dots ${one.colour}`, d: seen.map((i) => `M${this.sx(line.x[i]).toFixed(1)} ${this.sy(line.y[i]).toFixed(1)}h0`).join("") || "M0 0" });
  }

  // Names at the ends of the first curves, as far as there is room.
  names(box) {
    const taken = [];
    return this.lines.flatMap((line) => {
      const y = this.sy(line.y.at(-1));
      if (!(y >= box.top && y <= box.bottom) || taken.length === 10 || taken.some((other) => Math.abs(other - y) < 13)) return [];
      taken.push(y);
      return [svg("text", { class: `name ${line.series.colour}`, x: box.right + 6, y: y + 4 }, cut(line.name, 17))];
    });
  }

  marks(box) {
    return (this.what.marks || []).filter(({ x }) => x >= this.span.x[0] && x <= this.span.x[1]).flatMap(({ x, short, label, dash }, place) => {
      const text = box.right - box.left < 420 ? short : label;
      // The stronger weight has its name on the left, so that names do not cross lines, as long as there is room.
      const at = this.sx(x), room = 7 * text.length, left = place > 0 ? at - room > box.left : at + room > box.right;
      return [svg("line", { class: "chosen", x1: at, x2: at, y1: box.top - 4, y2: box.bottom, "stroke-dasharray": dash }),
        svg("text", { class: "chosen", x: at + (left ? -5 : 5), y: box.top + 12 + 14 * place, "text-anchor": left ? "end" : "start" }, text)];
    });
  }

  curve(one, line, kind) {
    let path = "", pen = false;
    for (let i = 0; i < line.x.length; i++) {
      if (!this.sx.fits(line.x[i]) || !this.sy.fits(line.y[i])) { pen = false; continue; }
      path += `${pen ? "L" : "M"}${this.sx(line.x[i]).toFixed(1)} ${this.sy(line.y[i]).toFixed(1)}`;
      pen = true;
    }
    return svg("path", { class: `${kind} ${one.colour}`, d: path || "M0 0", "stroke-dasharray": one.dash, "data-series": one.label, "data-line": line.name });
  }

  visible(line, i) {
    const { x, y } = this.span;
    return this.sx.fits(line.x[i]) && this.sy.fits(line.y[i]) && line.x[i] >= x[0] && line.x[i] <= x[1] && line.y[i] >= y[0] && line.y[i] <= y[1];
  }

  nearest(px, py) {
    let best = null, least = Infinity;
    for (const line of this.lines) {
      for (let i = 0; i < line.x.length; i++) {
        if (!this.visible(line, i)) continue;
        const distance = (this.sx(line.x[i]) - px) ** 2 + (this.sy(line.y[i]) - py) ** 2;
        if (distance < least) { least = distance; best = { line, i }; }
      }
    }
    return best;
  }

  // Show a point, or none; lines are found again by their identity, since news brings new ones.
  show(point, speak = false) {
    const line = point && this.lines.find((other) => other.id === point.line.id);
    this.chosen = line && point.i < line.x.length && this.visible(line, point.i) ? { line, i: point.i } : null;
    this.front.replaceChildren();
    this.tip.hidden = !this.chosen;
    if (!this.chosen) return;
    const { i } = this.chosen, { series, name } = line, { box } = this;
    const x = this.sx(line.x[i]), y = this.sy(line.y[i]);
    this.front.append(svg("line", { class: "cross", x1: x, x2: x, y1: box.top, y2: box.bottom }),
      svg("line", { class: "cross", x1: box.left, x2: box.right, y1: y, y2: y }),
      svg("circle", { class: `spot ${series.colour}`, cx: x, cy: y, r: 5 }));
    if (this.what.crowded) this.front.prepend(svg("g", { "clip-path": `url(#${this.clip})` }, this.curve(series, line, "curve near")));
    const facts = [[this.what.short || this.what.title, this.what.say(line.y[i])], ...this.what.facts(line, i)];
    this.tip.replaceChildren(el("b", {}, swatch(series), name),
      el("dl", {}, ...facts.flatMap(([term, text]) => [el("dt", {}, term), el("dd", {}, text)])));
    const width = this.tip.offsetWidth, height = this.tip.offsetHeight, all = this.plot.clientWidth;
    const left = x + 14 + width < all ? x + 14 : Math.max(0, x - 14 - width);
    this.tip.style.setProperty("transform", `translate(${left}px, ${Math.max(-30, Math.min(y - height - 10, box.bottom - height))}px)`);
    if (speak) this.voice.textContent = `${name}: ${facts.map(([term, text]) => `${term} ${text}`).join(", ")}`;
  }

  listen() {
    const at = (event) => {
      const place = this.svg.getBoundingClientRect();
      return [event.clientX - place.left, event.clientY - place.top];
    };
    let start = null;
    this.plot.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !this.box) return;
      start = at(event);
      if (event.target === this.hit) this.hit.setPointerCapture(event.pointerId);
      if (event.pointerType === "touch") this.show(this.nearest(...start));
    });
    this.plot.addEventListener("pointermove", (event) => {
      if (!this.box) return;
      const now = at(event);
      if (start && this.dragged(start, now)) {
        const area = this.area(start, now, event.pointerType === "touch");
        this.show(null);
        this.front.replaceChildren(svg("rect", { class: "band", x: area.x[0], width: area.x[1] - area.x[0], y: area.y[0], height: area.y[1] - area.y[0] }));
      } else if (event.pointerType !== "touch") {
        this.show(this.nearest(...now));
      }
    });
    this.plot.addEventListener("pointerup", (event) => {
      if (start && this.dragged(start, at(event))) this.zoomTo(this.area(start, at(event), event.pointerType === "touch"));
      start = null;
    });
    this.plot.addEventListener("pointercancel", () => { start = null; this.show(null); });
    this.plot.addEventListener("pointerleave", (event) => { if (!start && event.pointerType !== "touch") this.show(null); });
    this.plot.addEventListener("dblclick", () => this.reset());
    this.plot.addEventListener("keydown", (event) => { if (this.key(event.key)) event.preventDefault(); });
    this.plot.addEventListener("blur", () => this.show(null));
  }

  dragged(a, b) { return Math.abs(a[0] - b[0]) > 6 || Math.abs(a[1] - b[1]) > 6; }

  // The part between two corners; a flat one is all of the height, and a thin one all of the width.
  area(a, b, flat) {
    const within = (value, low, high) => Math.min(Math.max(value, low), high);
    const { left, right, top, bottom } = this.box;
    const x = [within(Math.min(a[0], b[0]), left, right), within(Math.max(a[0], b[0]), left, right)];
    const y = [within(Math.min(a[1], b[1]), top, bottom), within(Math.max(a[1], b[1]), top, bottom)];
    const whole = { x: x[1] - x[0] < 14 && !flat, y: flat || y[1] - y[0] < 14 };
    return { x: whole.x ? [left, right] : x, y: whole.y ? [top, bottom] : y, whole };
  }

  zoomTo(area) {
    const zoom = { ...this.zoom };
    if (!area.whole.x) zoom.x = area.x.map(this.sx.back).sort((a, b) => a - b);
    if (!area.whole.y) zoom.y = [this.sy.back(area.y[1]), this.sy.back(area.y[0])];
    this.zooms.set(this.zoomKey, zoom);
    this.draw();
  }

  // Closer to the chosen point, or the middle, by a factor; along x.
  closer(factor) {
    const { left, right } = this.box;
    const centre = this.chosen ? this.sx(this.chosen.line.x[this.chosen.i]) : (left + right) / 2;
    const ends = [centre - (centre - left) * factor, centre + (right - centre) * factor].map(this.sx.back).sort((a, b) => a - b);
    if (ends.every(isNumber)) this.zooms.set(this.zoomKey, { ...this.zoom, x: ends });
    this.draw();
  }

  key(name) {
    if (!this.box) return false;
    if (name === "0" || name === "Escape") { this.reset(); return true; }
    if (name === "+" || name === "=") { this.closer(0.6); return true; }
    if (name === "-") { this.closer(1 / 0.6); return true; }
    const lines = this.lines.filter((line) => line.x.some((_, i) => this.visible(line, i)));
    if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(name) || lines.length === 0) return false;
    let { line, i } = this.chosen || { line: lines[0], i: -1 };
    if (name === "ArrowUp" || name === "ArrowDown") {
      const x = i < 0 ? 0 : line.x[i];
      line = lines[(lines.indexOf(line) + (name === "ArrowDown" ? 1 : lines.length - 1)) % lines.length];
      i = this.closest(line, x);
    } else {
      const seen = line.x.map((_, place) => place).filter((place) => this.visible(line, place));
      const now = seen.indexOf(i);
      const next = { ArrowLeft: Math.max(0, now - 1), ArrowRight: Math.min(seen.length - 1, now + 1), Home: 0, End: seen.length - 1 }[name];
      i = seen[next];
    }
    this.show({ line, i }, true);
    return true;
  }

  closest(line, x) {
    let best = 0, least = Infinity;
    line.x.forEach((value, i) => {
      if (this.visible(line, i) && Math.abs(value - x) < least) { least = Math.abs(value - x); best = i; }
    });
    return best;
  }

  table() {
    const rows = this.lines.flatMap((line) => line.y.map((_, i) => [line.name, ...this.what.row(line, i, this.against)]));
    const most = 3000;
    const shown = rows.length > most ? rows.filter((_, i) => i % Math.ceil(rows.length / most) === 0) : rows;
    return table([this.what.many || "Series", ...this.what.head(this.against)], shown, 1);
  }
}
