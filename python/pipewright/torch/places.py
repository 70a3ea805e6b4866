"""Where in a user's own code something went wrong."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import traceback
import types
from typing import Any, Iterator

from .installed import require_torch

MOST_WORDS = 200  # characters of another's message


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without what a failing export prints: its graphs. What went wrong is in the exception."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def own_frames(error: BaseException) -> list[tuple[types.CodeType, int]]:
    """Functions that are neither PyTorch's nor ours, with their lines, the innermost last."""
    torch = require_torch()
    inside = (os.path.dirname(torch.__file__), os.path.dirname(os.path.dirname(__file__)), "<")
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    return [(code, line) for code, line in frames if not code.co_filename.startswith(inside)]


def place_of(error: BaseException) -> str:
    """"model.py:12, in forward"; "" where it is not known."""
    frames = own_frames(error)
    return f"{frames[-1][0].co_filename}:{frames[-1][1]}, in {frames[-1][0].co_name}" if frames else ""


def is_within(error: BaseException, function: Any) -> bool:
    """Whether the innermost of these places is in this function."""
    frames = own_frames(error)
    return bool(frames) and frames[-1][0] is getattr(function, "__code__", None)


def sentence_of(error: BaseException) -> str:
    """What went wrong, on one line, with its place."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    words = lines[0] if lines else type(error).__name__
    if len(words) > MOST_WORDS:
        words = words[:MOST_WORDS] + "..."
    place = place_of(error)
    return f"{words} ({place})" if place else words
