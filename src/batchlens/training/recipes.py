"""How an optimizer of one's own is described: a recipe, its settings and its task."""

from batchlens.training._recipes import Recipe, Setting, Settings, Stepper, Task

__all__ = ["Recipe", "Setting", "Settings", "Stepper", "Task"]
