"""The language of a unit's command: words, variables, shell code, wrappers and containers."""
