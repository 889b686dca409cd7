"""The sensitivity map of a model: which settings find planted edits, and what an audit may say because of it."""

from refbias.sensitivity.design import Design
from refbias.sensitivity.pipeline import sensitivity
from refbias.sensitivity.saved import SensitivityMap, load

__all__ = ["Design", "SensitivityMap", "load", "sensitivity"]
