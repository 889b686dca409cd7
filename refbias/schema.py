"""The JSON schema of result.json, as shipped with the package."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any


def result_schema() -> dict[str, Any]:
    """The schema (JSON Schema 2020-12) that every result.json of this release conforms to."""
    schema: dict[str, Any] = json.loads(resources.files("refbias").joinpath("result.schema.json").read_text("utf-8"))
    return schema
