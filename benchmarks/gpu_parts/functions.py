"""Part 8: exp, tanh and sigmoid on all float32: the device's results against the native ones, to the bit."""

import os
import queue
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from evolve.numerics import native, portable
from evolve.numerics.device_protocol import MOST_PARTS, WIDTH
from evolve.shapes import ceil_div
from gpu_parts.context import Context, NotMeasuredError, Outcome

NAMES = ("exp", "tanh", "sigmoid")
_ALL = 2**32
_CHUNK = 2**22
_ODD = 389  # the order of the chunks covers all magnitudes, even if the time runs out
_SPARE = 10.0  # seconds


def compare(context: Context) -> Outcome:
    """Compare as many inputs as the time allows, if possible all; the native side runs on all cores."""
    device = context.device()
    stride = 2**16 if context.emulated else 1
    chunk = min(_CHUNK, _ALL // stride // 4)
    threads = len(os.sched_getaffinity(0))
    bits = device.host_array((threads + 2, chunk), np.uint32)
    answers = device.host_array((threads + 2, len(NAMES), chunk), np.float32)
    x, y, work = device.allocate(4 * chunk), device.allocate(4 * chunk * len(NAMES)), device.queue()
    free: queue.Queue[int] = queue.Queue()
    for n in range(len(bits)):
        free.put(n)
    offsets = np.arange(0, chunk * stride, stride, dtype=np.uint32)
    first: dict[str, str] = {}

    def judge(n: int) -> list[int]:
        try:
            with np.errstate(all="ignore"):
                wrong = {name: differences(name, bits[n], ours) for name, ours in zip(NAMES, answers[n], strict=True)}
            for name, some in wrong.items():
                if len(some):
                    first.setdefault(name, hex(some[0]))
            return [len(some) for some in wrong.values()]
        finally:
            free.put(n)

    total = _ALL // stride // chunk
    done = 0
    judged = []
    with ThreadPoolExecutor(threads) as pool:
        while done < total and context.left > _SPARE:
            n = free.get()
            start = done * _ODD % total * chunk * stride
            np.add(offsets, np.uint32(start), out=bits[n])
            work.upload(x.address, bits[n])
            for k, name in enumerate(NAMES):
                blocks = ceil_div(chunk, WIDTH * MOST_PARTS)
                work.launch(name, blocks, MOST_PARTS, x.address, y.address + 4 * chunk * k, chunk)
            work.download(y.address, answers[n])
            work.wait()
            judged.append(pool.submit(judge, n))
            done += 1
    if not judged:
        raise NotMeasuredError("no time was left")
    counts = np.array([future.result() for future in judged]).reshape(-1, len(NAMES)).sum(axis=0)
    differing = dict(zip(NAMES, counts.tolist(), strict=True))
    count = done * chunk
    for name in NAMES:
        where = f", the first at {first[name]}" if name in first else ""
        print(f"{name}: {count:,} inputs, {differing[name]:,} differ{where}")
    figures = {"inputs": count, "differing": differing, "all": count == _ALL, "first": first}
    every = "all 2^32 inputs" if count == _ALL else f"{count:,} inputs of 2^32"
    return Outcome(f"{every}: {sum(differing.values()):,} differ", not any(differing.values()), figures)


def differences(name: str, bits: np.ndarray, ours: np.ndarray) -> np.ndarray:
    """Return the inputs, as bits, whose results differ; all NaNs count as equal."""
    x = bits.view(np.float32)
    wanted = native.apply(name, x) if native.available() else getattr(portable, name)(x)
    wrong = np.flatnonzero(wanted.view(np.uint32) != ours.view(np.uint32))
    return bits[wrong[~(np.isnan(wanted[wrong]) & np.isnan(ours[wrong]))]]
