// The whole page, from what is in it or from what the live server says.
const POLL = 1000;
const initial = JSON.parse(byId("data").textContent);
const runsTable = new RunsTable(), curves = new Curves(), settings = new Settings(), clients = new Clients(), sites = new Sites(), model = new Model(), inference = new Inference(), selections = new Selections(), evaluations = new Evaluations(), learning = new LearningCurves(), slices = new Slices();
let volumes = JSON.parse(byId("volumes").textContent), volumesVersion = "";

// A reconstruction begins with its slices, and a fit with its table of coefficients; how it was computed comes last, and folded.
const COMPUTATION = ["runs", "curves", "settings", "sites", "clients"];
function arrange(runs) {
  if (runs.some((run) => run.kind === "ct")) byId("main").prepend(byId("slices"));
  if (byId("computation") || !runs.some((run) => run.summary)) return;
  const main = byId("main"), folded = el("details", { id: "computation" }, el("summary", {}, "How it was computed: runs, rounds, bits, settings"));
  main.prepend(byId("inference"), byId("selection"), byId("evaluation"), byId("learning"), byId("model"));
  main.append(folded);
  folded.append(...COMPUTATION.map(byId));
}

function render(data) {
  const { runs } = data, series = seriesOf(runs, data.live);
  arrange(runs);
  byId("runs").hidden = runs.length === 0;
  byId("waiting").hidden = runs.length > 0;
  byId("waiting").textContent = data.live ? "There is no run yet. This page shows it as soon as it begins." : "There are no runs.";
  runsTable.update(runs, series);
  byId("trouble").replaceChildren(...troubles(runs));
  const begun = runs.map((run) => run.created).filter(Boolean).sort();
  const going = runs.filter((run) => run.status === "running").length;
  byId("summary").textContent = [count(runs.length, "run", "runs"), going ? `${going} going on` : "", begun.length ? moment(begun[0]) : ""].filter(Boolean).join(" \u00b7 ");
  curves.update(runs, series);
  settings.update(series);
  model.update(runs);
  inference.update(runs);
  selections.update(runs);
  evaluations.update(runs);
  learning.update(runs, series);
  clients.update(data.federations, runs);
  sites.update(runs);
  const versions = runs.map((run) => run.versions).find((one) => Object.keys(one).length) || {};
  byId("footer").textContent = Object.entries(versions).map(([name, text]) => (name === "platform" ? text : `${name} ${text}`)).join(" \u00b7 ");
  return going;
}

// Light or dark: what the system says, until the button says otherwise.
const dark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : dark.matches);
function nameTheme() {
  byId("theme").textContent = isDark() ? "Light theme" : "Dark theme";
}
function kept(value) {
  // A browser may refuse storage to files.
  try {
    if (value) localStorage.setItem("fpdfp-theme", value);
    return localStorage.getItem("fpdfp-theme");
  } catch {
    return null;
  }
}
byId("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  kept(document.documentElement.dataset.theme);
  nameTheme();
});
dark.addEventListener("change", nameTheme);
if (["light", "dark"].includes(kept())) document.documentElement.dataset.theme = kept();
nameTheme();

function says(text, kind) {
  const node = byId("live");
  node.hidden = false;
  node.className = `live ${kind}`;
  if (node.textContent !== text) node.textContent = text;
}

// The browser sends the tag of what it has, and the server answers 304 where nothing has changed.
let shown = null;
async function news() {
  try {
    const answer = await fetch("data.json", { cache: "no-cache" });
    if (!answer.ok) throw new Error(String(answer.status));
    const tag = answer.headers.get("ETag");
    if (tag === null || tag !== shown) {
      const data = await answer.json();
      const going = render(data);
      if (data.images !== volumesVersion) {
        volumes = data.images ? await (await fetch("volumes.json", { cache: "no-cache" })).json() : null;
        volumesVersion = data.images;
      }
      slices.update(volumes, data.runs);
      shown = tag;
      says(going || data.runs.length === 0 ? "live" : "no run is going on", going ? "" : "still");
    } else if (byId("live").classList.contains("lost")) {
      shown = null;
    }
  } catch {
    says("the server does not answer", "lost");
  }
  setTimeout(news, document.hidden ? 5 * POLL : POLL);
}

if (initial.live) {
  says("live", "still");
  news();
} else {
  render(initial);
  slices.update(volumes, initial.runs);
}
