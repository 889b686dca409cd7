from __future__ import annotations

import pytest

from refbias.errors import RefbiasError, UsageError
from refbias.topics.table import csv

TOPICS = {"Age": ["Old people"], "Gender": ["Women"]}


def test_prompts_take_the_topic_of_their_row(tmp_path):
    file = tmp_path / "topics.csv"
    file.write_text('prompt,topic\n"Who  reads,\nand when?",age\nWho sings?,\nWho cooks?,Gender\n', encoding="utf-8")
    found = csv(["Who cooks?", "Who reads, and when?", "Who sings?", "Who runs?"], TOPICS, path=str(file))
    assert found == ["Gender", "Age", None, None]
    assert found.reasons == {"no topic": 1, "not in the file": 1}


def test_a_table_that_does_not_fit_is_refused(tmp_path):
    file = tmp_path / "topics.csv"
    file.write_text("prompt,topic\nWho cooks?,Gander\n", encoding="utf-8")
    with pytest.raises(
        RefbiasError, match=r"row 2: no topic 'Gander'. Did you mean 'Gender'\? There are: Age, Gender."
    ):
        csv(["Who cooks?"], TOPICS, path=str(file))
    file.write_text("prompt,topic\nWho cooks?,Age\nWho cooks?,Gender\n", encoding="utf-8")
    with pytest.raises(RefbiasError, match="row 3: this prompt has another topic above"):
        csv(["Who cooks?"], TOPICS, path=str(file))
    with pytest.raises(UsageError, match="no such file"):
        csv(["Who cooks?"], TOPICS, path=str(tmp_path / "none.csv"))
