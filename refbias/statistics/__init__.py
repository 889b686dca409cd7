"""How sure a figure is: intervals, p-values, and agreement with an external signal.

Everything takes plain arrays. What cannot be computed is None beside the reason, never NaN.
"""

from refbias.statistics.agreement import agreement
from refbias.statistics.calibrator import (
    Calibrator,
    alarm_threshold,
    conformal_threshold,
    domain_of,
    fit_calibrator,
    leave_one_run_out,
    reliability,
)
from refbias.statistics.families import holm, holm_family
from refbias.statistics.groups import (
    Alternative,
    GroupDraws,
    auc_difference,
    auc_permutation,
    common_group_permutation,
    fit_band,
    group_bootstrap,
    max_statistic,
)
from refbias.statistics.measures import Figure, auc, linear_fit_error, pearson, within
from refbias.statistics.meta import Meta, mean_over_runs, meta_analysis, random_effects
from refbias.statistics.roc import DeLong, Part, auc_parts, delong, noise_ceiling, threshold_sweep
from refbias.statistics.shifts import (
    LEVEL,
    Contrasts,
    CrossedBootstrap,
    Estimate,
    Scores,
    jackknife_estimates,
    left_out,
)

__all__ = [
    "LEVEL",
    "Alternative",
    "Calibrator",
    "Contrasts",
    "CrossedBootstrap",
    "DeLong",
    "Estimate",
    "Figure",
    "GroupDraws",
    "Meta",
    "Part",
    "Scores",
    "agreement",
    "alarm_threshold",
    "auc",
    "auc_difference",
    "auc_parts",
    "auc_permutation",
    "common_group_permutation",
    "conformal_threshold",
    "delong",
    "domain_of",
    "fit_band",
    "fit_calibrator",
    "group_bootstrap",
    "holm",
    "holm_family",
    "jackknife_estimates",
    "leave_one_run_out",
    "left_out",
    "linear_fit_error",
    "max_statistic",
    "mean_over_runs",
    "meta_analysis",
    "noise_ceiling",
    "pearson",
    "random_effects",
    "reliability",
    "threshold_sweep",
    "within",
]
