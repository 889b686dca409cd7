"""Series of audited models: fine-tuned on this machine, edited in closed form, or merged from two checkpoints."""

from refbias.checkpoints.base import Checkpoint, Series
from refbias.checkpoints.editing import edited
from refbias.checkpoints.merge import merge
from refbias.checkpoints.planted import planted

CHECKPOINTS = {"planted": planted, "edited": edited, "merge": merge}

__all__ = ["CHECKPOINTS", "Checkpoint", "Series", "edited", "merge", "planted"]
