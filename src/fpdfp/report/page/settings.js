// Settings: those in which series differ as a table, those that all of them share in a list.
class Settings {
  update(series) {
    const known = series.filter((one) => Object.keys(one.runs[0].settings).length);
    byId("settings").hidden = known.length === 0;
    const text = JSON.stringify(known.map((one) => [one.label, one.runs[0].settings]));
    if (this.seen === text) return;
    this.seen = text;
    const keys = [...new Set(known.flatMap((one) => Object.keys(one.runs[0].settings)))];
    const of = (one, key) => one.runs[0].settings[key] ?? "\u2013";
    const differ = keys.filter((key) => known.some((one) => of(one, key) !== of(known[0], key)));
    byId("settings-differ").hidden = differ.length === 0;
    byId("settings-differ").replaceChildren(el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Settings that differ" },
      table(["Run", ...differ], known.map((one) => [one.full, ...differ.map((key) => of(one, key))]), Infinity)));
    const same = keys.filter((key) => !differ.includes(key));
    byId("settings-same").hidden = same.length === 0;
    byId("settings-same").replaceChildren(el("h3", {}, known.length > 1 ? "The same for all" : "All settings"),
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Settings" }, table(["Setting", "Value"], same.map((key) => [key, of(known[0], key)]), Infinity)));
  }
}
