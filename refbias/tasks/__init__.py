"""What ``task=`` runs. A task is a function of one `refbias.tasks.run.Run`; its result has ``data`` and ``save``."""

from refbias.tasks.adapter_drift import PARTS as ADAPTER_DRIFT_PARTS
from refbias.tasks.adapter_drift import adapter_drift
from refbias.tasks.adapter_drift import check as check_adapter_drift
from refbias.tasks.audit import PARTS, audit, check
from refbias.tasks.finetune import PARTS as FINETUNE_PARTS
from refbias.tasks.finetune import check as check_finetune
from refbias.tasks.finetune import finetune
from refbias.tasks.generate import PARTS as GENERATE_PARTS
from refbias.tasks.generate import check as check_generate
from refbias.tasks.generate import generate
from refbias.tasks.isotropy import CHOSEN as ISOTROPY_PARTS
from refbias.tasks.isotropy import check as check_isotropy
from refbias.tasks.isotropy import isotropy
from refbias.tasks.judge import PARTS as JUDGE_PARTS
from refbias.tasks.judge import check as check_judge
from refbias.tasks.judge import judge
from refbias.tasks.merge import PARTS as MERGE_PARTS
from refbias.tasks.merge import check as check_merge
from refbias.tasks.merge import merge
from refbias.tasks.screen import check as check_screen
from refbias.tasks.screen import screen
from refbias.tasks.sensitivity import CHOSEN as SENSITIVITY_PARTS
from refbias.tasks.sensitivity import check as check_sensitivity
from refbias.tasks.sensitivity import sensitivity
from refbias.tasks.similarity import CHOSEN as SIMILARITY_PARTS
from refbias.tasks.similarity import check as check_similarity
from refbias.tasks.similarity import similarity
from refbias.tasks.validate import check as check_validate
from refbias.tasks.validate import validate
from refbias.tasks.weat import CHOSEN as WEAT_PARTS
from refbias.tasks.weat import check as check_weat
from refbias.tasks.weat import weat

# name -> (part, traits); the trait ``check`` takes the run too, and refuses it before anything is loaded or tracked;
# ``parts`` are the kinds of parts that the task uses, which a tracker keeps
TASKS = {
    "audit": (audit, {"check": check, "parts": PARTS}),
    "finetune": (finetune, {"check": check_finetune, "parts": FINETUNE_PARTS}),
    "merge": (merge, {"check": check_merge, "parts": MERGE_PARTS}),
    "weat": (weat, {"check": check_weat, "parts": WEAT_PARTS}),
    "isotropy": (isotropy, {"check": check_isotropy, "parts": ISOTROPY_PARTS}),
    "similarity": (similarity, {"check": check_similarity, "parts": SIMILARITY_PARTS}),
    "adapter_drift": (adapter_drift, {"check": check_adapter_drift, "parts": ADAPTER_DRIFT_PARTS}),
    "generate": (generate, {"check": check_generate, "parts": GENERATE_PARTS}),
    "screen": (screen, {"check": check_screen, "parts": PARTS}),
    "judge": (judge, {"check": check_judge, "parts": JUDGE_PARTS}),
    "sensitivity": (sensitivity, {"check": check_sensitivity, "parts": SENSITIVITY_PARTS}),
    "validate": (validate, {"check": check_validate, "parts": ()}),
}
