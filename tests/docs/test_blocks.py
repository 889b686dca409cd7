from __future__ import annotations

import pytest

from tests.docs.blocks import Block, blocks
from tests.docs.test_documents import run

DOCUMENT = """\
Text, and `inline run`.

```bash
not run
```

```bash run
false | true
```

````python run exit=3 slow
print('''```''')
````

  ```python run
  print(1)
  ```
"""


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "page.md"
        path.write_text(text)
        return path

    return write


def test_only_marked_blocks_are_found_with_their_words(write):
    path = write(DOCUMENT)
    assert blocks(path) == [
        Block(path, 7, "bash", "false | true\n"),
        Block(path, 11, "python", "print('''```''')\n", exit_status=3, slow=True),
        Block(path, 15, "python", "print(1)\n"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```bash run fast\n```\n", "page.md:1: 'fast' is not one of run, slow, exit=N"),
        ("\n```toml run\n```\n", "page.md:2: only bash and python can be run, not 'toml'"),
        ("```bash run\n", "page.md:1: this fence is not closed"),
    ],
)
def test_what_is_not_understood_is_an_error(write, text, message):
    with pytest.raises(ValueError, match=message):
        blocks(write(text))


def test_blocks_fail_as_scripts_do(tmp_path, write):
    path = write(DOCUMENT)
    assert run(Block(path, 1, "bash", "false | true\n"), tmp_path).returncode == 1
    assert run(Block(path, 1, "bash", "false\ntrue\n"), tmp_path).returncode == 1
    assert run(Block(path, 1, "bash", "echo $UNSET_NAME_OF_A_VARIABLE\n"), tmp_path).returncode == 1
    assert run(Block(path, 1, "python", "raise SystemExit(3)\n"), tmp_path).returncode == 3


def test_blocks_use_this_interpreter_and_the_folder(tmp_path, write):
    import sys

    path = write(DOCUMENT)
    assert run(Block(path, 1, "bash", "python -c 'import sys; print(sys.prefix)' > found\n"), tmp_path).returncode == 0
    assert (tmp_path / "found").read_text().strip() == sys.prefix
    assert run(Block(path, 1, "python", "print(open('found').read())\n"), tmp_path).returncode == 0
