"""Write the dashboards beside this file: `make dashboards`. A test fails where they differ from what this writes."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from grafana.boards.engines.board import board as engines
from grafana.boards.fleet.board import board as fleet
from grafana.boards.host.board import board as host
from grafana.boards.incident.board import board as incident
from grafana.kit.panels import Json

BOARDS: Mapping[str, Callable[[], Json]] = {
    "llmhost-incident.json": incident,
    "llmhost-host.json": host,
    "llmhost-fleet.json": fleet,
    "llmhost-engines.json": engines,
}


def files() -> dict[str, str]:
    """Return the text of each dashboard by file name."""
    return {name: json.dumps(board(), indent=2, ensure_ascii=False) + "\n" for name, board in BOARDS.items()}


def main() -> int:
    here = Path(__file__).parent
    for name, text in files().items():
        (here / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
