"""Fine-tuning: what is taught (`DATA`), how (`REGIMES`), and the training itself (`refbias.finetuning.training`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from refbias.finetuning.base import Example, Lessons, Regime
from refbias.finetuning.contrast import contrast
from refbias.finetuning.files import file
from refbias.finetuning.regimes import full, lora
from refbias.finetuning.training import Finetuned, finetune
from refbias.finetuning.wildguard import wildguardmix_synth_even, wildguardmix_unharmful

DATA: Mapping[str, Callable[..., Lessons]] = {
    "contrast": contrast,
    "wildguardmix_unharmful": wildguardmix_unharmful,
    "wildguardmix_synth_even": wildguardmix_synth_even,
    "file": file,
}
REGIMES: Mapping[str, Callable[..., Regime]] = {"lora": lora, "full": full}

__all__ = ["DATA", "REGIMES", "Example", "Finetuned", "Lessons", "Regime", "finetune"]
