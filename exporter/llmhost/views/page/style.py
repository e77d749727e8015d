"""The style sheet of the status page: light and dark, narrow and wide. Heights are whole pixels: nothing jumps."""

from typing import Final

STYLE: Final = """
:root {
  color-scheme: light dark;
  --ground: #f5f6f8; --card: #ffffff; --line: #d3d8de; --text: #191d22; --faint: #565e68; --link: #0a55b5;
  --good: #17682f; --doubt: #7a4b00; --bad: #b3201a;
  --good-ground: #e4f3e8; --doubt-ground: #fbefd9; --bad-ground: #fde7e5;
  --free: #e3e7ec; --used: #9aa3ad; --run: #7d99bd;
  --current: #2f7fd1; --leftover: #d0342c; --orphan: #a3195b; --gone: #6e1010; --container: #5a67b8;
  --session: #7b5ea7; --system: #6b7480; --other: #8a7f54; --unattributed: #d98a00;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #101317; --card: #191d23; --line: #343b44; --text: #e7eaee; --faint: #a2abb6; --link: #8fc0ff;
    --good: #7ed491; --doubt: #f2bf6b; --bad: #ff9088;
    --good-ground: #14281a; --doubt-ground: #2d2411; --bad-ground: #341816;
    --free: #2c333b; --used: #6a7480; --run: #56749c;
    --current: #4c9aea; --leftover: #f0574e; --orphan: #e2579b; --gone: #b8453f; --container: #8a96e6;
    --session: #ab8ede; --system: #929ca8; --other: #b5a972; --unattributed: #eda52f;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 0.75rem; max-width: 78rem; background: var(--ground); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere;
}
h1, h2, h3, p, ul, ol, figure { margin: 0; }
ul, ol { padding: 0; list-style: none; }
h1 { font-size: 1.125rem; }
h2 { font-size: 1.125rem; margin-bottom: 0.375rem; }
h3 { font-size: 1rem; }
a { color: var(--link); }
a:focus-visible, summary:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
summary { cursor: pointer; }
code, pre { font: 0.9em/1.4 ui-monospace, monospace; }
pre { margin: 0.25rem 0; padding: 0.5rem; background: var(--ground); white-space: pre-wrap; }
header { display: flex; flex-wrap: wrap; gap: 0 1rem; justify-content: space-between; align-items: baseline; }
header p, footer p, .faint, figcaption, .legend, .axis { color: var(--faint); font-size: 0.875rem; }
main { overflow-anchor: none; }
section {
  margin-top: 0.75rem; padding: 0.75rem; background: var(--card); border: 1px solid var(--line); border-radius: 6px;
}
.good { color: var(--good); }
.doubt { color: var(--doubt); }
.bad { color: var(--bad); }
#health { color: var(--text); border-left-width: 6px; }
#health.good { background: var(--good-ground); border-color: var(--good); }
#health.doubt { background: var(--doubt-ground); border-color: var(--doubt); }
#health.bad { background: var(--bad-ground); border-color: var(--bad); }
#health h2 { font-size: 1.375rem; margin: 0; }
#health li { margin-top: 0.25rem; }
#old {
  position: sticky; top: 0; z-index: 1; margin-top: 0.5rem; padding: 0.5rem 0.75rem; border-radius: 6px;
  background: var(--bad); color: var(--card); font-weight: bold;
}
.stale main { filter: grayscale(1); }
.stale .level::before { content: "was: "; }
.stale #health { background: var(--card); border: 2px dashed var(--faint); }
article + article { border-top: 1px solid var(--line); margin-top: 0.75rem; padding-top: 0.75rem; }
.state { font-weight: bold; }
.told li { padding-left: 1rem; text-indent: -1rem; }
.day { margin-top: 0.375rem; }
.starts { display: block; width: 100%; height: 3rem; margin-top: 0.25rem; }
.axis { display: flex; justify-content: space-between; }
.starts rect, .bar rect { shape-rendering: crispEdges; }
.track, .free { fill: var(--free); }
.run { fill: var(--run); }
.unkept { fill: var(--faint); opacity: 0.25; }
.verdict-clean { fill: var(--current); background: var(--current); }
.verdict-resident { fill: var(--leftover); background: var(--leftover); }
.verdict-unknown { fill: var(--unattributed); background: var(--unattributed); }
.verdict-not-judged { fill: var(--system); background: var(--system); }
.verdict-not-started { fill: var(--session); background: var(--session); }
.counted { margin-right: 0.75rem; white-space: nowrap; }
details { margin-top: 0.25rem; }
details > *:not(summary) { margin-left: 1rem; }
.gpus {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 23rem), 1fr)); gap: 0.75rem 1.5rem;
  margin-top: 0.375rem;
}
.figures { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 1rem; }
.bar { display: block; width: 100%; height: 0.875rem; margin: 0.125rem 0; }
.held { font-size: 0.875rem; }
.legend { margin-top: 0.75rem; }
.key { display: inline-block; width: 0.7em; height: 0.7em; margin-right: 0.4em; border: 1px solid var(--faint); }
.used { fill: var(--used); }
KINDS
footer { margin: 0.75rem 0 2rem; }
footer ul { display: flex; flex-wrap: wrap; gap: 0.25rem 1rem; }
footer a { display: inline-block; padding: 0.25rem 0; }
""".replace(
    "KINDS",
    "\n".join(
        f".kind-{kind} {{ fill: var(--{kind}); background: var(--{kind}); }}"
        for kind in (
            "current",
            "leftover",
            "orphan",
            "gone",
            "container",
            "session",
            "system",
            "other",
            "unattributed",
        )
    ),
)
