"""Rays from a point to the ground: b2EdgeShape::RayCast and b2PolygonShape::RayCast of Box2D 2.3.

Erin Catto, zlib licence. A ray goes from a point p to p + d. It meets the ground at p + f d, and f is its result.
"""

from typing import Any

import numpy as np

from evolve.environments.physics.frames import dot, right_of, unit
from evolve.shapes import Float32

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


def ray_to_edges(states: Any, model: Any, p: Float32, d: Float32) -> Float32:
    """Return f for the first edge that each ray meets, 1 if it meets no edge: [rays, k].

    Args:
        states: Records of `layout.WORLD` [k].
        model: A record of `layout.MODEL`.
        p: [2, k], where the rays of each world begin.
        d: [2, rays, k].
    """
    height = states["height"].T[: model["num_edges"] + 1]
    vertices = np.array((np.broadcast_to(model["x"][: len(height), None], height.shape), height))
    v1 = vertices[:, :-1]
    e = vertices[:, 1:] - v1
    normal = right_of(unit(e))
    top = dot(normal, v1 - p[:, None])
    f = np.ones(d.shape[1:], np.float32)
    for ray in range(len(f)):
        with np.errstate(divide="ignore", invalid="ignore"):
            bottom = dot(normal, d[:, ray, None])
            share = top / bottom
            along = dot((p[:, None] + share * d[:, ray, None]) - v1, e) / dot(e, e)
            hit = (bottom != 0) & (share >= 0) & (share <= 1) & (along >= 0) & (along <= 1)
        f[ray] = np.where(hit, share, _ONE).min(axis=0)
    return f


def ray_to_blocks(states: Any, p: Float32, d: Float32, nearest: Float32) -> Float32:
    """Return f for the first block that each ray meets, at most `nearest`: [rays, k].

    Args:
        states: Records of `layout.WORLD` [k].
        p: [2, k], where the rays of each world begin.
        d: [2, rays, k].
        nearest: [rays, k], the results for other ground.
    """
    for number in range(states["num_blocks"].max(initial=0)):
        block = states["block"][:, number]
        corner, normal = (block[name].transpose(2, 1, 0) for name in ("corner", "normal"))
        f = _ray_to_block(corner - p[:, None], normal, d, nearest)
        nearest = np.where(number < states["num_blocks"], f, nearest)
    return nearest


def _ray_to_block(corner: Float32, normal: Float32, d: Float32, nearest: Float32) -> Float32:
    """Clip rays d [2, rays, k] by the faces of one block of each world, whose corners [2, 4, k] are relative to p."""
    lower, upper = np.zeros_like(nearest), nearest
    enters = np.zeros(nearest.shape, np.bool_)
    misses = enters.copy()
    for face in range(4):
        numerator, denominator = dot(normal[:, face], corner[:, face]), dot(normal[:, face, None], d)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = numerator / denominator
        misses |= (denominator == 0) & (numerator < 0)
        into = (denominator < 0) & (numerator < lower * denominator)
        out = (denominator > 0) & (numerator < upper * denominator)
        lower, upper = np.where(into, share, lower), np.where(out, share, upper)
        enters |= into
        misses |= upper < lower
    return np.where(enters & ~misses, lower, nearest)
