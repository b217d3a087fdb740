"""Rigid bodies in exact arithmetic: Box2D 2.3 to the bit, for bodies that collide with the ground only.

`world.step_worlds` advances worlds by one step. Read `frames` first: it has the constants, and the records that make up
a world. The other modules are `polygons` (shapes), `contacts` (collisions), `constraints` (the solver of joints and
contacts) and `distance` (continuous collision). The exact tasks LunarLander and BipedalWalker use this package.
"""
