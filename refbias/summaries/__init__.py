"""What is made of all jobs of one sweep."""

from refbias.summaries.base import FOLDER, Job, markdown, read_jobs, save
from refbias.summaries.curves import anchors, scatter, seeds, thresholds
from refbias.summaries.tables import table1, table3, table5, table6, table7

SUMMARIES = {
    f"delta_b_{name}": part
    for name, part in {
        "table1": table1,
        "table3": table3,
        "table5": table5,
        "table6": table6,
        "table7": table7,
        "anchors": anchors,
        "seeds": seeds,
        "thresholds": thresholds,
        "scatter": scatter,
    }.items()
}

__all__ = ["FOLDER", "SUMMARIES", "Job", "markdown", "read_jobs", "save"]
