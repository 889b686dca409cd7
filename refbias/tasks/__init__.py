"""What ``task=`` runs. A task is a function of one `refbias.tasks.run.Run`; its result has ``data`` and ``save``."""

from refbias.tasks.audit import audit, check

# name -> (part, traits); the trait ``check`` takes the run too, and refuses it before anything is loaded or tracked
TASKS = {"audit": (audit, {"check": check})}
