# SPDX-License-Identifier: Apache-2.0
"""Run a command without system calls that proot 5.1 does not know: `older_calls.py COMMAND…`.

proot passes on a call that it does not know with the path unchanged, so a program would see this machine's file instead of that of the
other system. Without these calls the C library uses the older ones, which proot translates.
"""

import ctypes
import os
import platform
import struct
import sys

_CALLS = {"x86_64": (0xC000003E, (332, 437, 439, 452)), "aarch64": (0xC00000B7, (291, 437, 439, 452))}
"""By processor: its number for audits, and its calls statx, openat2, faccessat2 and fchmodat2 (Linux, include/uapi)."""
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _NO_SUCH_CALL = 0x7FFF0000, 0x00050000 | 38
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def main() -> None:
    """Install a filter that answers "no such system call", and become the command."""
    architecture, calls = _CALLS[platform.machine()]
    code = [(_LOAD, 0, 0, 4), (_EQUAL, 0, len(calls) + 1, architecture), (_LOAD, 0, 0, 0)]
    code += [(_EQUAL, len(calls) - number, 0, call) for number, call in enumerate(calls)]
    code += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _NO_SUCH_CALL)]
    packed = b"".join(struct.pack("=HBBI", *one) for one in code)
    program = _Program(len(code), packed)
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SECCOMP, _FILTER, ctypes.byref(program), 0, 0)):
        if libc.prctl(*arguments):
            sys.exit(f"older_calls: {os.strerror(ctypes.get_errno())}")
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606


if __name__ == "__main__":
    main()
