"""Rigid bodies in exact arithmetic: the physics of Box2D 2.3, to the bit, for tasks whose bodies collide with ground only."""
