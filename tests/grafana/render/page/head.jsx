// What is above the panels: the board's name, the time shown, what is chosen of its variables, its annotations.
import { dateTimeFormat } from '@grafana/data';
import React from 'react';

const told = (at) => dateTimeFormat(at, { timeZone: 'utc', format: 'YYYY-MM-DD HH:mm' });

function Switch({ layer, theme }) {
  const colour = theme.visualization.getColorByName(layer.colour);
  const track = { width: 24, height: 12, borderRadius: 6, background: layer.on ? theme.colors.primary.main : theme.colors.border.strong };
  const knob = { width: 8, height: 8, borderRadius: 4, background: '#fff', position: 'relative', top: 2, left: layer.on ? 14 : 2 };
  return (
    <span style={{ display: 'inline-flex', alignItems: 'center', gap: 6, color: theme.colors.text.secondary }}>
      <span style={{ width: 8, height: 8, borderRadius: 4, background: colour }} />
      {layer.name}
      <span style={track}>
        <span style={{ ...knob, display: 'block' }} />
      </span>
    </span>
  );
}

export function Head({ board, theme }) {
  const { colors, typography } = theme;
  const box = { border: `1px solid ${colors.border.weak}`, background: colors.background.primary, padding: '4px 8px' };
  return (
    <div style={{ padding: '10px 16px', height: board.head, boxSizing: 'border-box', overflow: 'hidden', ...typography.bodySmall }}>
      <div style={{ display: 'flex', alignItems: 'center', gap: 8, marginBottom: 8 }}>
        <span style={{ ...typography.h4, flex: 1 }}>{board.title}</span>
        {board.links.map((link) => (
          <span key={link} style={box}>{link} ▾</span>
        ))}
        <span style={box}>
          {told(board.from)} to {told(board.to)} UTC
        </span>
      </div>
      <div style={{ display: 'flex', alignItems: 'center', gap: 8, whiteSpace: 'nowrap' }}>
        {board.variables.map(({ label, text }) => (
          <span key={label} style={{ display: 'inline-flex' }}>
            <span style={{ ...box, borderRight: 'none', fontWeight: 500 }}>{label}</span>
            <span style={{ ...box, background: colors.background.canvas }}>{text} ▾</span>
          </span>
        ))}
        <span style={{ flex: 1 }} />
        <span style={{ display: 'inline-flex', gap: 16 }}>
          {board.layers.map((layer) => (
            <Switch key={layer.name} layer={layer} theme={theme} />
          ))}
        </span>
      </div>
    </div>
  );
}
