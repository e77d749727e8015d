// A picture in 256 colours: window.quantised(base64 of a PNG) -> { width, height, palette, pixels }, both in base64.
// Boxes of colours are cut at their widest channel until there are enough; the commonest colour stands for its box, so
// that plain areas keep theirs exactly.

const COLOURS = 256;

function boxOf(colours) {
  let widest = 0;
  let range = -1;
  for (let channel = 0; channel < 3; channel++) {
    let low = 255;
    let high = 0;
    for (const { rgb } of colours) {
      low = Math.min(low, rgb[channel]);
      high = Math.max(high, rgb[channel]);
    }
    if (high - low > range) {
      [widest, range] = [channel, high - low];
    }
  }
  const count = colours.reduce((sum, one) => sum + one.count, 0);
  return { colours, widest, range, weight: range * Math.sqrt(count) };
}

function halves({ colours, widest }) {
  colours.sort((one, other) => one.rgb[widest] - other.rgb[widest]);
  const low = colours[0].rgb[widest];
  const middle = (low + colours.at(-1).rgb[widest]) / 2;
  const at = Math.max(1, colours.findIndex((one) => one.rgb[widest] > middle));
  return [boxOf(colours.slice(0, at)), boxOf(colours.slice(at))];
}

function base64(bytes) {
  let text = '';
  for (let at = 0; at < bytes.length; at += 32768) {
    text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  }
  return btoa(text);
}

window.quantised = async (png) => {
  const bitmap = await createImageBitmap(await (await fetch(`data:image/png;base64,${png}`)).blob());
  const { width, height } = bitmap;
  const context = new OffscreenCanvas(width, height).getContext('2d');
  context.drawImage(bitmap, 0, 0);
  const { data } = context.getImageData(0, 0, width, height);
  const counts = new Map();
  for (let at = 0; at < data.length; at += 4) {
    const key = (data[at] << 16) | (data[at + 1] << 8) | data[at + 2];
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  const boxes = [boxOf([...counts].map(([key, count]) => ({ key, count, rgb: [key >> 16, (key >> 8) & 255, key & 255] })))];
  while (boxes.length < COLOURS) {
    boxes.sort((one, other) => one.weight - other.weight);
    if (boxes.at(-1).range === 0) {
      break;
    }
    boxes.push(...halves(boxes.pop()));
  }
  const palette = new Uint8Array(3 * boxes.length);
  const places = new Map();
  boxes.forEach(({ colours }, index) => {
    const commonest = colours.reduce((one, other) => (other.count > one.count ? other : one));
    palette.set(commonest.rgb, 3 * index);
    colours.forEach(({ key }) => places.set(key, index));
  });
  const pixels = new Uint8Array(width * height);
  for (let at = 0; at < pixels.length; at++) {
    pixels[at] = places.get((data[4 * at] << 16) | (data[4 * at + 1] << 8) | data[4 * at + 2]);
  }
  return { width, height, palette: base64(palette), pixels: base64(pixels) };
};
