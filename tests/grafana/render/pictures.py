"""Draw our boards over a written history, without a Grafana server, and say how each panel came out.

    python -m tests.grafana.render.pictures [BOARD…] [--history NAME] [--width 1600] [--dark] [--whole] [--output DIR]

Panels are drawn by Grafana's own UI library; the board around them, state timelines and annotations by the page here.
Without --whole a picture ends where the README needs no more of it; all panels are drawn and told of all the same.
Exits with 1 where a panel could not be drawn.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.fakes.needs import run_by_hand
from tests.grafana.boards import BOARDS, GRAFANA
from tests.grafana.histories.index import HISTORIES
from tests.grafana.render.resolve import resolved
from tests.grafana.render.studio import Studio, studio
from tests.grafana.views import View

NAMES = tuple(uid.removeprefix("llmhost-") for uid in BOARDS)
DESCRIPTION = (__doc__ or "").partition("\n")[0]
CAPTION = "Drawn with Grafana's UI library over a written history, not a Grafana server."


@dataclass(frozen=True)
class Scene:
    """A board's picture: a history up to a second, the chosen values of variables, and where the picture ends."""

    history: str
    until: int
    seconds: int
    last: str = ""  # title of the panel below which the picture ends
    chosen: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def view(self) -> View:
        return View(self.history, self.until, self.chosen, self.seconds)


# In the middle of the loop: the sixth restart has found memory held, nobody has stepped in.
_LOOP = Scene("incident", until=11460, seconds=1800)
_GLM = (("unit", ("vllm@glm.service",)),)
SCENES: Mapping[str, Scene] = {
    "llmhost-incident": replace(_LOOP, chosen=_GLM, last="GPU memory of the host by kind of holder"),
    "llmhost-host": replace(_LOOP, last="GPU 7"),
    "llmhost-engines": Scene("incident", until=21600, seconds=21600, last="KV cache in use"),
    "llmhost-fleet": Scene("fleet", until=21600, seconds=21600, last="Units that looped"),
}
_HEAD, _FOOT, _GAP = 80, 28, 8  # pixels


def draw(drawing: Studio, uid: str, scene: Scene, given: argparse.Namespace) -> tuple[bytes, bool]:
    """Give the picture, and whether all could be drawn; print how each panel came out."""
    board = resolved(scene.view(), uid, given.width)
    bottoms: dict[str, int] = {}
    for panel in board["panels"]:
        place = panel["place"]
        place["y"] += _HEAD
        bottoms[panel["title"]] = place["y"] + place["h"]
    low = bottoms[scene.last] if scene.last and not given.whole else max(bottoms.values())
    board |= {"dark": given.dark, "head": _HEAD, "foot": _FOOT, "height": low + _GAP + _FOOT, "caption": CAPTION}
    report, picture = drawing.draw(board)
    print(f"{uid}, history {scene.history}: {len(picture) / 1000:.0f} kB", *_lines(board["panels"], report), sep="\n")
    return picture, all(panel["how"] != "error" for panel in report)


def _lines(panels: Sequence[dict[str, Any]], report: Sequence[dict[str, Any]]) -> Iterator[str]:
    for panel, outcome in zip(panels, report, strict=True):
        if panel["type"] == "row":
            yield f"  {panel['title']}"
            continue
        found = ", ".join(f"{query['ref']} {query['series'] or 'none'}" for query in panel["asked"])
        more = f": {outcome['more']}" if outcome.get("more") else ""
        yield f"    {outcome['how']:<8}{panel['type']:<15}{panel['title']} ({found}){more}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.grafana.render.pictures", description=DESCRIPTION)
    parser.add_argument("board", nargs="*", help=f"all of them if none is named: {', '.join(NAMES)}")
    parser.add_argument("--history", choices=sorted(HISTORIES), help="all of it, not the board's own part of its own")
    parser.add_argument("--until", type=int, help="second of the history at which the time shown ends")
    parser.add_argument("--seconds", type=int, help="how long the time shown is")
    parser.add_argument("--width", type=int, default=1600)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--whole", action="store_true", help="do not cut the pictures off")
    parser.add_argument("--output", type=Path, default=GRAFANA / "pictures")
    given = parser.parse_args(arguments)
    if unknown := set(given.board) - set(NAMES):
        parser.error(f"no board of that name: {', '.join(sorted(unknown))}")
    given.output.mkdir(parents=True, exist_ok=True)
    good = True
    with studio() as drawing:
        for uid in (f"llmhost-{name}" for name in given.board or NAMES):
            picture, well = draw(drawing, uid, _scene(uid, given), given)
            (given.output / f"{uid}.png").write_bytes(picture)
            good = good and well
    return 0 if good else 1


def _scene(uid: str, given: argparse.Namespace) -> Scene:
    scene = SCENES[uid]
    if given.history:
        seconds = HISTORIES[given.history]().seconds
        scene = Scene(given.history, until=seconds, seconds=seconds)
    return replace(scene, until=given.until or scene.until, seconds=given.seconds or scene.seconds)


if __name__ == "__main__":
    sys.exit(run_by_hand(lambda: main(sys.argv[1:])))
