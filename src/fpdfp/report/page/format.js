// Numbers as people read them.
const MINUS = "\u2212";
const HIGH = { "-": "\u207b", 0: "\u2070", 1: "\u00b9", 2: "\u00b2", 3: "\u00b3", 4: "\u2074", 5: "\u2075", 6: "\u2076",
  7: "\u2077", 8: "\u2078", 9: "\u2079" };
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const power = (exponent) => "10" + [...String(exponent)].map((digit) => HIGH[digit]).join("");

function figure(value, digits = 4) {
  if (!isNumber(value)) return "\u2013";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e7) return value.toLocaleString("en").replace("-", MINUS);
  if (size >= 1e-3 && size < 1e7) {
    const text = value.toPrecision(digits);
    return (text.includes("e") ? String(Number(text)) : text.replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "")).replace("-", MINUS);
  }
  const [mantissa, exponent] = value.toExponential(Math.max(0, digits - 1)).split("e");
  const short = mantissa.replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "").replace("-", MINUS);
  return short === "1" ? power(Number(exponent)) : `${short}\u00b7${power(Number(exponent))}`;
}

// On a logarithmic axis of many decades powers of ten are written alike.
function decimal(value, powers) {
  const exponent = Math.round(Math.log10(Math.abs(value)));
  const plain = !powers || exponent === 0 || Math.abs(value - 10 ** exponent) > 1e-9 * Math.abs(value);
  return plain ? figure(value, 3) : power(exponent);
}

function bits(value, digits = 3) {
  if (!isNumber(value)) return "\u2013";
  for (const unit of ["bit", "kbit", "Mbit", "Gbit", "Tbit"]) {
    if (Math.abs(value) < 999.5 || unit === "Tbit") return `${figure(Number(value.toPrecision(digits)), digits)} ${unit}`;
    value /= 1000;
  }
  return "";
}

function duration(value) {
  if (!isNumber(value)) return "\u2013";
  if (value < 1) return `${figure(value * 1000, 3)} ms`;
  if (value < 120) return `${figure(value, 3)} s`;
  if (value < 7200) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  return `${Math.floor(value / 3600)} h ${Math.round((value % 3600) / 60)} min`;
}

const percent = (value) => (isNumber(value) ? `${figure(100 * value, 3)} %` : "\u2013");
const SHORT = /^(psnr|ssim|auc|mse|rmse|mae|r2|f1)$/;
const words = (name) => name.split(/[_ ]/).map((word) => (SHORT.test(word) ? word.toUpperCase() : word)).join(" ");
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const cut = (text, most) => (text.length > most ? text.slice(0, most - 1) + "\u2026" : text);
const count = (number, one, many) => `${figure(number)} ${number === 1 ? one : many}`;

function moment(text) {
  const when = new Date(text);
  return Number.isNaN(when.getTime()) ? "" : when.toISOString().replace("T", " ").slice(0, 16) + " UTC";
}
