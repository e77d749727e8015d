"""Write the dashboards beside this file: `make dashboards`. A test fails where they differ from what this writes."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from grafana.boards import engines, fleet, host, incident
from grafana.kit.panels import Json

BOARDS: Mapping[str, Callable[[], Json]] = {
    "llmhost-incident.json": incident.board,
    "llmhost-host.json": host.board,
    "llmhost-fleet.json": fleet.board,
    "llmhost-engines.json": engines.board,
}


def files() -> dict[str, str]:
    """Name → text of every dashboard."""
    return {name: json.dumps(board(), indent=2, ensure_ascii=False) + "\n" for name, board in BOARDS.items()}


def main() -> int:
    here = Path(__file__).parent
    for name, text in files().items():
        (here / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
