// The bars of a state timeline: which value holds from when to when.
// A value holds until the next point, or for one step where none comes by then: a series that ends is a gap.
export function barsOf(time, field, end) {
  const step = time.config.interval;
  const bars = [];
  field.values.forEach((value, index) => {
    const from = time.values[index];
    const next = time.values[index + 1] ?? (from + step > end ? from : Infinity);
    const to = next - from > step ? from + step : index + 1 < field.values.length ? next : end;
    const before = bars.at(-1);
    if (value != null && before?.to === from && before.value === value) {
      before.to = to;
    } else if (value != null) {
      bars.push({ from, to, value });
    }
  });
  return bars;
}
