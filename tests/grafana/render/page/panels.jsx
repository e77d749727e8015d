// The panels that our boards use. What draws them is Grafana's; how their options go in is as in Grafana's own panels.
import {
  applyNullInsertThreshold,
  dateTime,
  getDisplayValueAlignmentFactors,
  getFieldDisplayValues,
  renderTextPanelMarkdown,
} from '@grafana/data';
import { BigValue, TimeSeries, VizRepeater } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import React from 'react';
import { mark } from './marks.js';
import { StateTimeline } from './timeline.jsx';

const LEGEND = { displayMode: 'list', placement: 'bottom', showLegend: true, calcs: [] };

export const timeRange = (board) => {
  const [from, to] = [dateTime(board.from), dateTime(board.to)];
  return { from, to, raw: { from, to } };
};

const valuesOf = ({ frames, panel, theme }) =>
  getFieldDisplayValues({
    fieldConfig: { defaults: {}, overrides: [], ...panel.fieldConfig },
    reduceOptions: { calcs: ['lastNotNull'], values: false, ...panel.options.reduceOptions },
    replaceVariables: (text) => text,
    data: frames,
    sparkline: false,
    theme,
    timeZone: 'utc',
  });

function Stat(given) {
  const { panel, width, height, theme, frames } = given;
  const { options } = panel;
  const named = options.textMode === 'auto' && (panel.fieldConfig?.defaults?.displayName || !panel.title);
  return (
    <VizRepeater
      getValues={() => valuesOf(given)}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      renderValue={({ value, alignmentFactors, width: wide, height: high, count }) => (
        <BigValue
          value={value.display}
          count={count}
          colorMode={options.colorMode ?? 'value'}
          graphMode={options.graphMode ?? 'area'}
          justifyMode={options.justifyMode ?? 'auto'}
          textMode={named ? 'value_and_name' : options.textMode ?? 'auto'}
          text={options.text}
          alignmentFactors={alignmentFactors}
          disableWideLayout={!(options.wideLayout ?? true)}
          width={wide}
          height={high}
          theme={theme}
        />
      )}
      source={frames}
      renderCounter={0}
      itemSpacing={3}
      autoGrid
      orientation={options.orientation ?? 'auto'}
      width={width}
      height={height}
    />
  );
}

function Lines({ panel, board, frames, width, height, theme }) {
  const shown = timeRange(board);
  // As Grafana's panel does: what has ended has nothing at the end, and the legend's last value is none.
  const [refFieldPseudoMin, refFieldPseudoMax] = [shown.from.valueOf(), shown.to.valueOf()];
  const gaps = frames.map((frame) => applyNullInsertThreshold({ frame, refFieldPseudoMin, refFieldPseudoMax }));
  return (
    <TimeSeries
      frames={gaps}
      structureRev={1}
      timeRange={shown}
      timeZone="utc"
      legend={{ ...LEGEND, ...panel.options.legend }}
      options={panel.options}
      width={width}
      height={height}
    >
      {(config) => {
        mark(config, board.events, theme);
        return null;
      }}
    </TimeSeries>
  );
}

function Rows({ panel, board, frames, width, height }) {
  const { options } = panel;
  return (
    <TableNG
      data={frames[0]}
      noHeader={options.showHeader === false}
      showTypeIcons={false}
      sortBy={options.sortBy ?? []}
      cellHeight={options.cellHeight ?? 'sm'}
      frozenColumns={options.frozenColumns?.left ?? 0}
      fieldConfig={panel.fieldConfig}
      timeRange={timeRange(board)}
      structureRev={1}
      width={width}
      height={height}
    />
  );
}

function Text({ panel, width, height }) {
  const html = panel.options.mode === 'html' ? panel.options.content : renderTextPanelMarkdown(panel.options.content);
  return (
    <div className="markdown-html" style={{ width, height, overflow: 'hidden' }} dangerouslySetInnerHTML={{ __html: html }} />
  );
}

export const KINDS = {
  stat: Stat,
  'state-timeline': ({ panel, ...given }) => <StateTimeline options={panel.options} {...given} />,
  table: Rows,
  text: Text,
  timeseries: Lines,
};
// These draw something of their own where there is nothing to draw.
export const SAY_NOTHING_FOUND = ['stat', 'text'];
