"""How answers are read: rules, classifiers, language models, people."""

from typing import Any

from refbias.judges import classifier, people, profanity, rules, wildguard

# name -> (part, traits). ``cheap``: nothing is gained by keeping its verdicts. ``about``: a function of the context and
# the judge's options that says what verdicts depend on. ``speed``: options that change no verdict. ``reads_question``:
# it needs the question beside the answer.
_SPEED = ("batch", "concurrency", "key_env")
JUDGES: dict[str, Any] = {
    "decodingtrust_rules": (rules.decodingtrust_rules, {"cheap": True, "about": rules.about}),
    "wildguard": (
        wildguard.wildguard,
        {"about": wildguard.about, "speed": _SPEED, "reads_question": True},
    ),
    "toxigen_roberta": (classifier.toxigen_roberta, {"about": classifier.about, "speed": _SPEED}),
    "alt_profanity": (profanity.alt_profanity, {"cheap": True, "about": profanity.about}),
    "csv": (people.people, {"cheap": True, "about": people.about, "reads_question": True}),
}
