// Sites of a federation: how each answered, what it refused, how long it was waited for and what crossed the wire.
const SITE_HEAD = ["Site", "Asked", "Answered", "Absent", "Refused", "Sent again", "Waited for", "Per exchange", "To the site", "From the site"];

class Sites {
  update(runs) {
    const known = runs.filter((run) => run.sites.length);
    byId("sites").hidden = known.length === 0;
    const text = JSON.stringify(known.map((run) => [run.label, run.elapsed, run.sites]));
    if (this.seen === text) return;
    this.seen = text;
    byId("sites-body").replaceChildren(...known.map((run) => el("div", { class: "card" },
      el("h3", {}, runs.length > 1 ? run.label : "Exchanges"),
      el("p", { class: "muted" }, siteSummary(run)),
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Sites of ${run.label}` },
        table(SITE_HEAD, run.sites.map(siteRow), 1)),
      ...run.sites.filter((site) => site.last_refusal).map((site) => el("p", { class: "note" }, `Last refusal at ${site.name}: ${site.last_refusal}`)))));
  }
}

function siteSummary(run) {
  const waited = Math.max(...run.sites.map((site) => site.waited || 0));
  const refused = run.sites.reduce((sum, site) => sum + (site.refused || 0), 0);
  return [count(run.sites.length, "site", "sites"), count(run.rounds || 0, "round", "rounds"),
    isNumber(run.elapsed) ? `${duration(run.elapsed)} by the clock` : "", waited > 0 ? `${duration(waited)} waiting for the slowest site` : "",
    count(refused, "refusal", "refusals")].filter(Boolean).join(" \u00b7 ");
}

function siteRow(site) {
  const each = site.waited > 0 && site.answered > 0 ? duration(site.waited / site.answered) : "\u2013";
  return [site.name, figure(site.asked), figure(site.answered), figure(site.absent), figure(site.refused), figure(site.healed),
    site.waited > 0 ? duration(site.waited) : "\u2013", each, byteSize(site.bytes_down), byteSize(site.bytes_up)];
}

function byteSize(value) {
  if (!isNumber(value) || value === 0) return "\u2013";
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (value < 999.5 || unit === "GB") return `${figure(Number(value.toPrecision(3)), 3)} ${unit}`;
    value /= 1000;
  }
  return "";
}
