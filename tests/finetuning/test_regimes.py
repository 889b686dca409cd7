from typing import Any

import pytest

from refbias.errors import UsageError
from refbias.finetuning import REGIMES, Regime

PAPER: dict[str, Any] = {
    "epochs": 3.0,
    "batch": 4,
    "accumulation": 8,
    "warmup": 0.03,
    "schedule": "linear",
    "max_length": 1024,
    "max_steps": None,
    "precision": "auto",
}


def test_the_defaults_are_the_papers_recipe() -> None:
    full, lora = REGIMES["full"]().as_dict(), REGIMES["lora"]().as_dict()
    assert PAPER.items() <= full.items()
    assert PAPER.items() <= lora.items()
    assert (full["kind"], full["learning_rate"]) == ("full", 2e-5)
    assert (lora["kind"], lora["learning_rate"]) == ("lora", 1e-4)
    assert (lora["rank"], lora["alpha"], lora["dropout"]) == (16, 32, 0.05)
    assert lora["modules"] == ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    assert "rank" not in full


@pytest.mark.parametrize("kind", REGIMES)
def test_every_option_reaches_the_recipe(kind: str) -> None:
    values: dict[str, Any] = {
        "learning_rate": 0.5, "epochs": 7.0, "max_steps": 9, "batch": 3, "accumulation": 5, "warmup": 0.5,
        "schedule": "cosine", "weight_decay": 0.25, "max_length": 77, "first_block": 2, "precision": "fp32",
        "gradient_checkpointing": True,
    }  # fmt: skip
    if kind == "lora":
        values |= {"rank": 6, "alpha": 11, "dropout": 0.75, "modules": ["a"]}
    made = REGIMES[kind](**values).as_dict()
    assert {key: list(value) if key == "modules" else value for key, value in made.items() if key != "kind"} == values


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"learning_rate": 0.0}, r"regime\.learning_rate=0\.0: expected a number above 0"),
        ({"learning_rate": float("nan")}, r"regime\.learning_rate=nan"),
        ({"epochs": -1.0}, r"regime\.epochs=-1\.0: expected a number above 0"),
        ({"max_steps": 0}, r"regime\.max_steps=0: expected 1 or more"),
        ({"accumulation": 0}, r"regime\.accumulation=0: expected 1 or more"),
        ({"warmup": 1.0}, r"regime\.warmup=1\.0: expected a share from 0 to below 1"),
        ({"dropout": -0.1}, r"regime\.dropout=-0\.1: expected a share"),
        ({"weight_decay": -1.0}, r"regime\.weight_decay=-1\.0: expected 0 or more"),
        ({"max_length": 1}, r"regime\.max_length=1: expected 2 tokens or more"),
        ({"first_block": -1}, r"regime\.first_block=-1: expected the number of a block"),
        ({"modules": ()}, r"regime\.modules is empty"),
    ],
)
def test_values_out_of_range_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Regime("lora", **{"learning_rate": 1e-4, **values})
