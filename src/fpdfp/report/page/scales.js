// From numbers to pixels and back, with ticks at round numbers.
function scale(low, high, start, end, log) {
  const to = log ? Math.log10 : (value) => value;
  const from = log ? (value) => 10 ** value : (value) => value;
  const a = to(low), b = to(high), slope = (end - start) / (b - a || 1);
  const at = (value) => start + (to(value) - a) * slope;
  at.back = (pixel) => from(a + (pixel - start) / slope);
  at.fits = (value) => isNumber(value) && (!log || value > 0);
  return at;
}

// The range of values with some air around; in logarithms for a logarithmic axis.
function padded(low, high, log, air) {
  if (!(low <= high)) return log ? [0.1, 1] : [0, 1];
  if (log) {
    if (low === high) return [low / 2, high * 2];
    const room = (high / low) ** air;
    return [low / room, high * room];
  }
  if (low === high) { const room = Math.abs(low) * 0.1 || 1; return [low - room, high + room]; }
  return [low - air * (high - low), high + air * (high - low)];
}

// whole: for what is counted, there is nothing between two whole numbers.
function ticks(low, high, wanted, log, whole = false) {
  if (!whole) return log ? logTicks(low, high, wanted) : linearTicks(low, high, wanted);
  return log ? logTicks(low, high, wanted).filter(Number.isInteger) : linearTicks(low, high, Math.min(wanted, high - low));
}

function linearTicks(low, high, wanted) {
  const rough = (high - low) / Math.max(1, wanted);
  const decade = 10 ** Math.floor(Math.log10(rough));
  const step = decade * ([1, 2, 5, 10].find((factor) => factor * decade >= rough * 0.999) || 10);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step && found.length < 60; i++) {
    found.push(Number((i * step).toPrecision(12)));
  }
  return found;
}

function logTicks(low, high, wanted) {
  const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
  const decades = last - first + 1;
  if (decades < 2) {
    const found = [];
    for (let exponent = first - 1; exponent <= last + 1; exponent++) {
      for (const factor of [1, 2, 3, 5, 7]) {
        const value = factor * 10 ** exponent;
        if (value >= low && value <= high) found.push(Number(value.toPrecision(12)));
      }
    }
    return found.length >= 2 ? found : linearTicks(low, high, wanted).filter((value) => value > 0);
  }
  const step = Math.max(1, Math.ceil(decades / Math.max(2, wanted)));
  const found = [];
  for (let exponent = Math.ceil(first / step) * step; exponent <= last; exponent += step) found.push(10 ** exponent);
  return found;
}
