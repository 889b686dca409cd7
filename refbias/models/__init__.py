"""Models: what is audited and what it is compared with."""

from refbias.models.base import DerivedModel, Loaded, Model, release, set_weights
from refbias.models.find import MODELS, Source, find_model
from refbias.models.hf import LiveModel

__all__ = ["MODELS", "DerivedModel", "LiveModel", "Loaded", "Model", "Source", "find_model", "release", "set_weights"]
