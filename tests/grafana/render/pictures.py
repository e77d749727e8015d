"""Draw our boards over a written history, without a Grafana server, and say how each panel came out.

    python -m tests.grafana.render.pictures [BOARD…] [--history NAME] [--width 1600] [--dark] [--whole] [--output DIR]

Panels are drawn by Grafana's own UI library; the board around them, state timelines and annotations by the page here.
Without --whole a picture ends where the README needs no more of it; all panels are drawn and told of all the same.
Exits with 1 where a panel could not be drawn.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.architecture.checkout import ROOT
from tests.fakes.backfilled import Backfilled
from tests.fakes.needs import run_by_hand
from tests.grafana.histories.index import HISTORIES
from tests.grafana.render.resolve import Resolver
from tests.grafana.render.studio import Studio, studio
from tests.grafana.substitution import Span

GRAFANA = ROOT / "grafana"
BOARDS = tuple(path.stem.removeprefix("llmhost-") for path in sorted(GRAFANA.glob("llmhost-*.json")))
DESCRIPTION = (__doc__ or "").partition("\n")[0]
CAPTION = "Drawn with Grafana's UI library over a written history, not a Grafana server."


@dataclass(frozen=True)
class Scene:
    """What a picture shows of a board: a history from one second to another, and what is chosen of variables."""

    history: str
    until: int
    seconds: int
    chosen: Mapping[str, Sequence[str]] = field(default_factory=dict)
    last: str = ""  # title of the panel below which the picture ends


# In the middle of the loop: the sixth restart has found memory held, nobody has stepped in.
_LOOP = Scene("incident", until=11460, seconds=1800)
_SCENES: Mapping[str, Scene] = {
    "incident": replace(_LOOP, chosen={"unit": ["vllm@glm.service"]}, last="GPU memory of the host by kind of holder"),
    "host": replace(_LOOP, last="GPU 7"),
    "engines": Scene("incident", until=21600, seconds=21600, last="KV cache in use"),
    "fleet": Scene("fleet", until=21600, seconds=21600, last="Units that looped"),
}
_HEAD, _FOOT, _GAP = 80, 28, 8  # pixels


def draw(
    told: Studio, name: str, prometheus: Backfilled, scene: Scene, given: argparse.Namespace
) -> tuple[bytes, bool]:
    """Give the picture, and whether all could be drawn; print how each panel came out."""
    board = json.loads((GRAFANA / f"llmhost-{name}.json").read_text(encoding="utf-8"))
    end = prometheus.began + scene.until
    resolver = Resolver(prometheus.api, Span(end - scene.seconds, end), scrape_seconds=prometheus.history.every)
    made = resolver.board(board, given.width, scene.chosen)
    bottoms: dict[str, int] = {}
    for panel in made["panels"]:
        place = panel["place"]
        place["y"] += _HEAD
        bottoms[panel["title"]] = place["y"] + place["h"]
    low = bottoms[scene.last] if scene.last and not given.whole else max(bottoms.values())
    made |= {"dark": given.dark, "head": _HEAD, "foot": _FOOT, "height": low + _GAP + _FOOT, "caption": CAPTION}
    report, picture = told.draw(made)
    print(f"{name}, history {scene.history}: {len(picture) / 1000:.0f} kB", *_lines(made["panels"], report), sep="\n")
    return picture, all(one["how"] != "error" for one in report)


def _lines(panels: Sequence[dict[str, Any]], report: Sequence[dict[str, Any]]) -> Iterator[str]:
    for panel, one in zip(panels, report, strict=True):
        if panel["type"] == "row":
            yield f"  {panel['title']}"
            continue
        found = ", ".join(f"{asked['ref']} {asked['series'] or 'none'}" for asked in panel["asked"])
        more = f": {one['more']}" if one.get("more") else ""
        yield f"    {one['how']:<8}{panel['type']:<15}{panel['title']} ({found}){more}"


def main(arguments: Sequence[str]) -> int:
    asked = argparse.ArgumentParser(prog="python -m tests.grafana.render.pictures", description=DESCRIPTION)
    asked.add_argument("board", nargs="*", help=f"all of them if none is named: {', '.join(BOARDS)}")
    asked.add_argument("--history", choices=sorted(HISTORIES), help="all of it, not the board's own part of its own")
    asked.add_argument("--until", type=int, help="second of the history at which the time shown ends")
    asked.add_argument("--seconds", type=int, help="how long the time shown is")
    asked.add_argument("--width", type=int, default=1600)
    asked.add_argument("--dark", action="store_true")
    asked.add_argument("--whole", action="store_true", help="do not cut the pictures off")
    asked.add_argument("--output", type=Path, default=GRAFANA / "pictures")
    given = asked.parse_args(arguments)
    if unknown := set(given.board) - set(BOARDS):
        asked.error(f"no board of that name: {', '.join(sorted(unknown))}")
    given.output.mkdir(parents=True, exist_ok=True)
    scenes = {name: _scene(name, given) for name in given.board or BOARDS}
    good = True
    with studio() as drawing:
        for history in dict.fromkeys(scene.history for scene in scenes.values()):
            with Backfilled(HISTORIES[history]()) as prometheus:
                for name, scene in scenes.items():
                    if scene.history == history:
                        picture, well = draw(drawing, name, prometheus, scene, given)
                        (given.output / f"llmhost-{name}.png").write_bytes(picture)
                        good = good and well
    return 0 if good else 1


def _scene(name: str, given: argparse.Namespace) -> Scene:
    scene = _SCENES[name]
    if given.history:
        seconds = HISTORIES[given.history]().seconds
        scene = Scene(given.history, until=seconds, seconds=seconds)
    return replace(scene, until=given.until or scene.until, seconds=given.seconds or scene.seconds)


if __name__ == "__main__":
    sys.exit(run_by_hand(lambda: main(sys.argv[1:])))
