"""Ctrl-C while the command ``dpgep`` is imported: a line in place of a traceback. In other programs nothing changes."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def stop(number: int, _: FrameType | None) -> None:
    """End the process, which has opened nothing yet."""
    try:
        os.write(2, b"\ndpgep: interrupted; nothing was spent\n")
    finally:
        os._exit(128 + number)


def _is_command() -> bool:
    program = getattr(sys, "argv", [""])[0]
    if program == "-m":  # while Python looks for what to run
        words = iter(sys.orig_argv)
        return "-m" in words and next(words, None) == "dpgep"
    folder, name = os.path.split(os.path.realpath(program))
    return name in ("dpgep", "dpgep.exe") and folder == os.path.realpath(os.path.dirname(sys.executable or ""))


if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, stop)
