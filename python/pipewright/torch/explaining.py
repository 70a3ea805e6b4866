"""explain(): why does the job hang?"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from .. import _core
from .._core import Explanation


def explain(
    dumps: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | Mapping[int, bytes | str],
) -> Explanation:
    """Who waits in which call for whom, from the dumps of PyTorch's Flight Recorder, one of each rank.

    dumps is a folder of files, or files, whose names end with the rank, as PyTorch names them; or, by rank, what
    torch._C._distributed_c10d._dump_fr_trace() or another of these functions gave. InputError for what is no dump, or
    not all of one job's.
    """
    if isinstance(dumps, Mapping):
        return _core.explain({rank: dump.encode() if isinstance(dump, str) else dump for rank, dump in dumps.items()})
    if isinstance(dumps, (str, os.PathLike)):
        dumps = [dumps]
    return _core.explain([os.fspath(path) for path in dumps])
