"""Settings of hypothesis: a few seconds of always the same examples; by hand, LLMHOST_FUZZ=100000 new ones."""

import os

from hypothesis import HealthCheck, settings

_EXAMPLES = os.environ.get("LLMHOST_FUZZ", "")
settings.register_profile(
    "llmhost",
    max_examples=int(_EXAMPLES or 120),
    derandomize=not _EXAMPLES,
    database=None,
    deadline=None,  # the machine is busy
    suppress_health_check=(HealthCheck.too_slow,),
)
settings.load_profile("llmhost")
