"""Counts the bytes that are copied between the host and a device."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch


@contextmanager
def copied_bytes(queue: Any) -> Iterator[dict[str, int]]:
    """Yield a dictionary. At the end of the block, it has the bytes that the queue has copied in each direction."""
    copied: dict[str, int] = {}
    with (
        patch.object(queue, "upload", wraps=queue.upload) as upload,
        patch.object(queue, "download", wraps=queue.download) as download,
    ):
        yield copied
    copied["upload"] = sum(source.nbytes for (_, source), _ in upload.call_args_list)
    copied["download"] = sum(target.nbytes for (_, target), _ in download.call_args_list)
