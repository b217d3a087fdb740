"""Rigid bodies in exact arithmetic: Box2D 2.3 to the bit, for bodies that collide with the ground only."""
