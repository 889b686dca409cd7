"""Series of audited models whose change is known: fine-tuned on this machine, or edited in closed form."""

from refbias.checkpoints.base import Checkpoint, Series
from refbias.checkpoints.editing import edited
from refbias.checkpoints.planted import planted

CHECKPOINTS = {"planted": planted, "edited": edited}

__all__ = ["CHECKPOINTS", "Checkpoint", "Series", "edited", "planted"]
