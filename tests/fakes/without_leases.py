"""Runs a command as under fs.leases-enable=0, which is the whole machine's: `python without_leases.py COMMAND…`.

A seccomp filter (seccomp(2)) gives fcntl(…, F_SETLEASE, …) the kernel's answer, EINVAL, for good.
"""

import ctypes
import os
import platform
import struct
import sys
from pathlib import Path

PROGRAM = Path(__file__)
_FCNTL = {"x86_64": 72, "aarch64": 25}
_F_SETLEASE = 1024
_EINVAL = 22
_LOAD, _JUMP_IF, _RETURN = 0x20, 0x15, 0x06  # BPF: of absolute, of equal, of a constant
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def main(command: list[str]) -> None:
    steps = (
        (_LOAD, 0, 0, 0),  # the number of the call
        (_JUMP_IF, 0, 3, _FCNTL[platform.machine()]),
        (_LOAD, 0, 0, 24),  # the low half of its second argument
        (_JUMP_IF, 0, 1, _F_SETLEASE),
        (_RETURN, 0, 0, _ERRNO | _EINVAL),
        (_RETURN, 0, 0, _ALLOW),
    )
    packed = b"".join(struct.pack("HBBI", *step) for step in steps)
    libc = ctypes.CDLL(None, use_errno=True)
    for call in (
        (_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_SET_SECCOMP, _FILTER, ctypes.byref(_Program(len(steps), packed)), 0, 0),
    ):
        if libc.prctl(*call):
            raise OSError(ctypes.get_errno(), "prctl")
    os.execvp(command[0], command)  # noqa: S606 - no shell, on purpose


if __name__ == "__main__":
    main(sys.argv[1:])
