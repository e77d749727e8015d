"""Every metric, declared once: name, type, labels, help; a module for each section. docs/metrics.md is made from this.

A family's label set never varies. Enum labels come in three modes: `all` values are always emitted (0 included),
`sparse` only what there is, `current` one series with value 1.
"""

from collections.abc import Mapping
from types import MappingProxyType

from llmhost.metrics.catalog import engines, exporter, gpus, guard, shm, starts, units
from llmhost.metrics.catalog.declare import Family as Family
from llmhost.metrics.catalog.declare import MetricKind as MetricKind
from llmhost.metrics.catalog.declare import Mode as Mode
from llmhost.metrics.catalog.declare import Section as Section
from llmhost.metrics.catalog.engines import *  # noqa: F403 - a declaration is the one place for a metric's name
from llmhost.metrics.catalog.exporter import *  # noqa: F403
from llmhost.metrics.catalog.gpus import *  # noqa: F403
from llmhost.metrics.catalog.guard import *  # noqa: F403
from llmhost.metrics.catalog.shm import *  # noqa: F403
from llmhost.metrics.catalog.starts import *  # noqa: F403
from llmhost.metrics.catalog.units import *  # noqa: F403

# In the order of the page.
FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        value.name: value
        for section in (gpus, units, starts, shm, engines, guard, exporter)
        for value in vars(section).values()
        if isinstance(value, Family)
    }
)
