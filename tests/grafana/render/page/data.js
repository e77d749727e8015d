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

function registry(defaults, overrides) {
  const used = [
    ...Object.keys(defaults).filter((name) => name !== 'custom'),
    ...Object.keys(defaults.custom ?? {}).map((name) => `custom.${name}`),
    ...overrides.flatMap((one) => one.properties.map((property) => property.id)),
  ];
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
    fieldConfigRegistry: registry(defaults, overrides),
    replaceVariables: (text) => text,
    theme,
    timeZone: 'utc',
  });
  cacheFieldDisplayNames(made);
  return made;
}

export const isEmpty = (frames) => frames.every((frame) => frame.length === 0);
