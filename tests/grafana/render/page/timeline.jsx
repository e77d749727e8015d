// A state timeline. Grafana's own is in none of its packages: this one has the axes and the legend of its library, and
// draws the bars as Grafana does.
import { colorManipulator, getFieldDisplayName } from '@grafana/data';
import { AxisPlacement, GraphDrawStyle, ScaleDirection, ScaleOrientation, VisibilityMode } from '@grafana/schema';
import { UPlotChart, UPlotConfigBuilder, VizLayout, VizLegend } from '@grafana/ui';
import React from 'react';
import { mark } from './marks.js';

const PADDING = 4;
const FONT = 12;

// A value holds until the next point, or for one step where none comes by then: a series that ends is a gap.
function barsOf(time, field, end) {
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

function rowsOf(frames, end) {
  return frames.flatMap((frame) => {
    const time = frame.fields.find((field) => field.type === 'time');
    return frame.fields
      .filter((field) => field !== time)
      .map((field) => ({ name: getFieldDisplayName(field, frame, frames), field, bars: barsOf(time, field, end) }));
  });
}

function paint(u, rows, options, theme) {
  const { left, top, width, height } = u.bbox;
  const slot = height / rows.length;
  const bar = slot * (options.rowHeight ?? 0.9);
  const { ctx } = u;
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  ctx.font = `${FONT}px ${theme.typography.fontFamily}`;
  ctx.textBaseline = 'middle';
  rows.forEach(({ field, bars }, row) => {
    const y = Math.round(top + row * slot + (slot - bar) / 2);
    for (const { from, to, value } of bars) {
      const { color, text } = field.display(value);
      const x0 = Math.round(Math.max(left, u.valToPos(from, 'x', true)));
      const x1 = Math.round(Math.min(left + width, u.valToPos(to, 'x', true)));
      if (x1 < left || x0 > left + width) {
        continue;
      }
      ctx.fillStyle = colorManipulator.alpha(color, (field.config.custom?.fillOpacity ?? 70) / 100);
      ctx.fillRect(x0, y, Math.max(1, x1 - x0), Math.round(bar));
      if (options.showValue !== 'never' && bar >= FONT && ctx.measureText(text).width + 2 * PADDING < x1 - x0) {
        ctx.fillStyle = theme.colors.getContrastText(color, theme.colors.contrastThreshold);
        const centred = options.alignValue === 'center';
        ctx.textAlign = centred ? 'center' : options.alignValue === 'right' ? 'right' : 'left';
        ctx.fillText(text, centred ? (x0 + x1) / 2 : ctx.textAlign === 'right' ? x1 - PADDING : x0 + PADDING, y + bar / 2);
      }
    }
  });
  ctx.restore();
}

function configOf(rows, options, board, theme) {
  const builder = new UPlotConfigBuilder('utc');
  const across = { scaleKey: 'x', isTime: true, orientation: ScaleOrientation.Horizontal, direction: ScaleDirection.Right };
  builder.addScale({ ...across, range: () => [board.from, board.to] });
  builder.addScale({
    scaleKey: 'y',
    isTime: false,
    orientation: ScaleOrientation.Vertical,
    direction: ScaleDirection.Up,
    range: [0, rows.length],
  });
  builder.addAxis({ scaleKey: 'x', isTime: true, placement: AxisPlacement.Bottom, timeZone: 'utc', theme });
  builder.addAxis({
    scaleKey: 'y',
    isTime: false,
    placement: AxisPlacement.Left,
    splits: () => rows.map((_, row) => rows.length - row - 0.5),
    values: () => rows.map((row) => row.name),
    grid: { show: false },
    ticks: { show: false },
    size: rows[0].field.config.custom?.axisWidth,
    gap: 15,
    theme,
  });
  builder.addSeries({
    scaleKey: 'y',
    theme,
    drawStyle: GraphDrawStyle.Line,
    lineColor: theme.colors.text.primary,
    pathBuilder: () => null,
    pointsBuilder: () => undefined,
    showPoints: VisibilityMode.Never,
  });
  builder.addHook('draw', (u) => paint(u, rows, options, theme));
  return builder;
}

function legendOf(rows) {
  const colours = new Map();
  for (const { field, bars } of rows) {
    for (const { value } of bars) {
      const { color, text } = field.display(value);
      colours.set(text, color);
    }
  }
  return [...colours].map(([label, color]) => ({ label, color, yAxis: 1 }));
}

export function StateTimeline({ frames, options, board, width, height, theme }) {
  const [rows, config] = React.useMemo(() => {
    const all = rowsOf(frames, board.to);
    const made = configOf(all, options, board, theme);
    mark(made, board.events, theme);
    return [all, made];
  }, [frames]);
  const { legend: shown = {} } = options;
  const legend = shown.showLegend ? (
    <VizLayout.Legend placement={shown.placement ?? 'bottom'}>
      <VizLegend placement={shown.placement ?? 'bottom'} displayMode={shown.displayMode ?? 'list'} items={legendOf(rows)} />
    </VizLayout.Legend>
  ) : null;
  const data = [
    [board.from, board.to],
    [null, null],
  ];
  return (
    <VizLayout width={width} height={height} legend={legend}>
      {(inner, high) => <UPlotChart config={config} data={data} width={inner} height={high} />}
    </VizLayout>
  );
}
