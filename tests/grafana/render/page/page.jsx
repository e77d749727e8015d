// Draws one board: window.draw(board), then window.report says how each panel came out. See tests/grafana/render.
import { createTheme, setTimeZoneResolver, ThemeContext } from '@grafana/data';
import { GlobalStyles, PanelChrome } from '@grafana/ui';
import React from 'react';
import { createRoot } from 'react-dom/client';
import { framesOf, isEmpty } from './data.js';
import { Head } from './head.jsx';
import { KINDS, SAY_NOTHING_FOUND } from './panels.jsx';

setTimeZoneResolver(() => 'utc');

const NOTHING = { display: 'flex', height: '100%', alignItems: 'center', justifyContent: 'center', fontSize: 18 };
const WRONG = { color: '#f2495c', whiteSpace: 'pre-wrap', overflow: 'hidden' };

class Guarded extends React.Component {
  state = {};
  static getDerivedStateFromError(error) {
    return { error };
  }
  componentDidCatch(error) {
    this.props.onError(error);
  }
  render() {
    return this.state.error ? <div style={WRONG}>{String(this.state.error)}</div> : this.props.children;
  }
}

function Inside({ panel, board, theme, frames, width, height, say }) {
  const Kind = KINDS[panel.type];
  if (!Kind) {
    throw new Error(`panels of kind ${panel.type} are not drawn here`);
  }
  const nothing = panel.type !== 'text' && isEmpty(frames);
  React.useEffect(() => say(nothing ? 'No data' : 'drawn', panel.fieldConfig?.defaults?.noValue), []);
  if (nothing && !SAY_NOTHING_FOUND.includes(panel.type)) {
    return <div style={{ ...NOTHING, color: theme.colors.text.secondary }}>{panel.fieldConfig?.defaults?.noValue ?? 'No data'}</div>;
  }
  return <Kind {...{ panel, board, theme, frames, width, height }} />;
}

function Panel({ panel, board, theme, say }) {
  const [frames, setFrames] = React.useState();
  const wrong = (error) => say('error', String(error));
  React.useEffect(() => {
    framesOf(panel, theme).then(setFrames, wrong);
  }, []);
  const { w, h } = panel.place;
  return (
    <PanelChrome title={panel.title} description={panel.description} hoverHeader={!panel.title} width={w} height={h}>
      {(width, height) => (
        <Guarded onError={wrong}>
          {frames ? <Inside {...{ panel, board, theme, frames, width, height, say }} /> : null}
        </Guarded>
      )}
    </PanelChrome>
  );
}

const Row = ({ panel, theme }) => (
  <div style={{ ...theme.typography.h5, padding: '6px 0', color: theme.colors.text.primary }}>▾&nbsp; {panel.title}</div>
);

function Board({ board, theme, report }) {
  const { background, text } = theme.colors;
  const foot = { position: 'absolute', bottom: 0, right: 0, left: 0, height: board.foot, padding: '5px 16px', fontSize: 12 };
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <div style={{ position: 'relative', width: board.width, height: board.height, overflow: 'hidden', background: background.canvas }}>
        <Head board={board} theme={theme} />
        {board.panels.map((panel, index) => (
          <div key={index} style={{ position: 'absolute', left: panel.place.x, top: panel.place.y, width: panel.place.w }}>
            {panel.type === 'row' ? (
              <Row panel={panel} theme={theme} />
            ) : (
              <Panel {...{ panel, board, theme }} say={(how, more) => (report[index] ??= { how, more })} />
            )}
          </div>
        ))}
        <div style={{ ...foot, background: background.canvas, color: text.secondary, textAlign: 'right' }}>{board.caption}</div>
      </div>
    </ThemeContext.Provider>
  );
}

// Text is measured as the panels are drawn: its fonts must be there by then.
async function fonts(root) {
  root.render(<GlobalStyles />);
  const wanted = ['400 12px Inter', '500 12px Inter'];
  while (!(await Promise.all(wanted.map((font) => document.fonts.load(font)))).every((found) => found.length)) {
    await new Promise(requestAnimationFrame);
  }
}

window.draw = async (board) => {
  const real = Date.now;
  const ahead = board.to - real(); // "5 minutes ago" is told from the end of the time shown
  Date.now = () => real() + ahead;
  const theme = createTheme({ colors: { mode: board.dark ? 'dark' : 'light' } });
  const report = board.panels.map((panel) => (panel.type === 'row' ? { how: 'row' } : null));
  window.report = report;
  document.body.style.margin = 0;
  const root = createRoot(document.getElementById('board'));
  await fonts(root);
  root.render(<Board {...{ board, theme, report }} />);
};
window.drawn = () => window.report.every(Boolean);
