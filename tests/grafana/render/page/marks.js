// Annotations on a plot, as Grafana draws them: dashed lines, with a mark below the plot; spans are tinted.
import { colorManipulator } from '@grafana/data';
import { REGION_FILL_ALPHA } from '@grafana/ui';

const seen = new WeakSet();

export function mark(config, events, theme) {
  if (seen.has(config)) {
    return;
  }
  seen.add(config);
  config.addHook('draw', (u) => {
    const { left, top, width, height } = u.bbox;
    const bottom = top + height;
    const within = (x) => Math.min(left + width, Math.max(left, x));
    const { ctx } = u;
    ctx.save();
    ctx.lineWidth = 2;
    for (const event of events) {
      if (event.to < u.scales.x.min || event.from > u.scales.x.max) {
        continue;
      }
      const colour = theme.visualization.getColorByName(event.colour);
      const [from, to] = [event.from, event.to].map((at) => Math.round(within(u.valToPos(at, 'x', true))));
      ctx.strokeStyle = ctx.fillStyle = colour;
      ctx.setLineDash([5, 5]);
      for (const x of from === to ? [from] : [from, to]) {
        ctx.beginPath();
        ctx.moveTo(x, top);
        ctx.lineTo(x, bottom);
        ctx.stroke();
      }
      if (from === to) {
        ctx.beginPath();
        ctx.moveTo(from, bottom);
        ctx.lineTo(from - 5, bottom + 5);
        ctx.lineTo(from + 5, bottom + 5);
        ctx.fill();
      } else {
        ctx.fillRect(from, bottom, to - from, 5);
        ctx.fillStyle = colorManipulator.alpha(colour, REGION_FILL_ALPHA);
        ctx.fillRect(from, top, to - from, height);
      }
    }
    ctx.restore();
  });
}
