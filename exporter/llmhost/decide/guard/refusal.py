"""The exit code of a start that is refused. Pure.

systemd takes a status that SuccessExitStatus= lists for success, of ExecStartPre= too: the refused start would go on.
"""

from collections.abc import Collection

DOCUMENTED = (1, 2, 3, 4, 143)  # docs/guard.md; 143: SIGTERM
# A shell's, with 128 + the number of a signal among them, and systemd's own (systemd.exec(5)).
_OF_OTHERS = frozenset({*range(126, 193), *range(200, 256)})
_IN_THEIR_PLACE = (*(status for status in range(5, 256) if status not in _OF_OTHERS), *sorted(_OF_OTHERS))


def success_note(shown: str) -> str:
    """Say what SuccessExitStatus=, as `systemctl show` has it, means for a guard; "" for nothing."""
    listed = [status for status in shown.split() if status in {*map(str, DOCUMENTED), "KILL"}]
    if not listed:
        return ""
    return (
        f"SuccessExitStatus= counts {' '.join(listed)} as success, also of the guard: where it cannot ask systemd for "
        "that, or is killed, a start that it refuses goes on"
    )


def refusal_code(code: int, listed: Collection[int]) -> int:
    """Give the documented code, or in its place the first from 5 on that the unit does not list."""
    return next((status for status in (code, *_IN_THEIR_PLACE) if status not in listed), code)
