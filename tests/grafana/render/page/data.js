// The data of a panel, as Grafana hands it to what draws the panel: transformed, with units, mappings and overrides.
import {
  applyFieldOverrides,
  cacheFieldDisplayNames,
  dataLinksOverrideProcessor,
  displayNameOverrideProcessor,
  identityOverrideProcessor,
  FieldConfigOptionsRegistry,
  standardTransformers,
  standardTransformersRegistry,
  thresholdsOverrideProcessor,
  toDataFrame,
  transformDataFrame,
  valueMappingsOverrideProcessor,
} from '@grafana/data';
import { firstValueFrom } from 'rxjs';

standardTransformersRegistry.setInit(() =>
  [...new Map(Object.values(standardTransformers).map((one) => [one.id, one])).values()].map((one) => ({
    id: one.id,
    name: one.name,
    aliasIds: one.aliasIds,
    transformation: () => Promise.resolve(one),
  }))
);

const PROCESSORS = {
  displayName: displayNameOverrideProcessor,
  links: dataLinksOverrideProcessor,
  mappings: valueMappingsOverrideProcessor,
  thresholds: thresholdsOverrideProcessor,
};

// What the panels themselves take where a board says nothing.
const CUSTOM = {
  timeseries: {
    axisBorderShow: false,
    axisPlacement: 'auto',
    barAlignment: 0,
    drawStyle: 'line',
    fillOpacity: 0,
    gradientMode: 'none',
    lineInterpolation: 'linear',
    lineWidth: 1,
    pointSize: 5,
    scaleDistribution: { type: 'linear' },
    showPoints: 'auto',
    spanNulls: false,
    stacking: { mode: 'none', group: 'A' },
    thresholdsStyle: { mode: 'off' },
  },
  'state-timeline': { fillOpacity: 70, lineWidth: 0 },
  table: { align: 'auto', cellOptions: { type: 'auto' }, inspect: false },
};
const COLOUR = { timeseries: 'palette-classic', 'state-timeline': 'palette-classic' };

// What a board may set, by Grafana's code: of any panel, and of one kind under `custom.`. Grafana passes over the rest.
const STANDARD = [
  'actions color decimals description displayName fieldMinMax filterable links mappings max min noValue thresholds unit',
].flatMap((one) => one.split(' '));
const AXES =
  'axisBorderShow axisCenteredZero axisColorMode axisGridShow axisLabel axisPlacement axisSoftMax axisSoftMin axisWidth';
const OF_KIND = Object.fromEntries(
  Object.entries({
    timeseries: `${AXES} barAlignment barMaxWidth barWidthFactor drawStyle fillBelowTo fillOpacity gradientMode hideFrom insertNulls
      lineInterpolation lineStyle lineWidth pointSize scaleDistribution showPoints showValues spanNulls stacking thresholdsStyle transform`,
    'state-timeline': `${AXES} fillOpacity hideFrom insertNulls lineWidth spanNulls`,
    table: 'align cellOptions filterable footer hidden hideFrom hideFrom.viz inspect minWidth sortable width wrapHeaderText wrapText',
  }).map(([kind, names]) => [kind, names.split(/\s+/).map((name) => `custom.${name}`)])
);

function registry(panel, defaults, overrides) {
  const known = [...STANDARD, ...(OF_KIND[panel.type] ?? [])];
  const used = [
    ...Object.keys(defaults).filter((name) => name !== 'custom'),
    ...Object.keys(defaults.custom ?? {}).map((name) => `custom.${name}`),
    ...overrides.flatMap((one) => one.properties.map((property) => property.id)),
  ];
  const unknown = used.filter((id) => !known.includes(id));
  if (unknown.length) {
    throw new Error(`Grafana knows nothing of ${unknown.join(', ')} in a panel of kind ${panel.type}`);
  }
  return new FieldConfigOptionsRegistry(() =>
    [...new Set(used)].map((id) => ({
      id,
      path: id.replace(/^custom\./, ''),
      isCustom: id.startsWith('custom.'),
      name: id,
      settings: {},
      process: PROCESSORS[id] ?? identityOverrideProcessor,
      shouldApply: () => true,
    }))
  );
}

const NUMBERS = { NaN: NaN, '+Inf': Infinity, '-Inf': -Infinity };
const number = (text) => NUMBERS[text] ?? Number(text);

function read(frame) {
  const fields = frame.fields.map((field) =>
    field.type === 'number' ? { ...field, values: field.values.map(number) } : field
  );
  return toDataFrame({ ...frame, fields });
}

export async function framesOf(panel, theme) {
  const told = panel.fieldConfig ?? {};
  const defaults = {
    color: { mode: COLOUR[panel.type] ?? 'thresholds' },
    ...told.defaults,
    custom: { ...CUSTOM[panel.type], ...told.defaults?.custom },
  };
  const overrides = told.overrides ?? [];
  let frames = panel.frames.map(read);
  const transformations = (panel.transformations ?? []).filter((one) => !one.disabled);
  if (transformations.length) {
    frames = await firstValueFrom(transformDataFrame(transformations, frames, { interpolate: (text) => text }));
  }
  const made = applyFieldOverrides({
    data: frames,
    fieldConfig: { defaults, overrides },
    fieldConfigRegistry: registry(panel, defaults, overrides),
    replaceVariables: (text) => text,
    theme,
    timeZone: 'utc',
  });
  cacheFieldDisplayNames(made);
  return made;
}

export const isEmpty = (frames) => frames.every((frame) => frame.length === 0);
