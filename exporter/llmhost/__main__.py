"""`python -m llmhost`."""

import sys

from llmhost.cli.main import main

sys.exit(main())
