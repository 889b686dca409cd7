"""A configuration can run no code, whatever file or word it comes from."""

from __future__ import annotations

import pytest

from refbias.cli import main
from refbias.errors import UsageError
from refbias.guard import refuse_code


@pytest.mark.parametrize(
    ("node", "place"),
    [
        ({"callbacks": {"x": {"_target_": "os.mkdir", "path": "made"}}}, "hydra.callbacks.x._target_=os.mkdir"),
        ({"launcher": {"_target_": "hydra.utils.get_class"}}, "hydra.launcher._target_"),
        ({"job_logging": {"handlers": {"x": {"()": "os.mkdir"}}}}, r"hydra.job_logging.handlers.x.\(\)=os.mkdir"),
        ({"job_logging": {"handlers": {"x": {"class": "os.mkdir"}}}}, "handlers.x.class=os.mkdir"),
        ({"job_logging": {"handlers": [{"stream": "ext://os.environ"}]}}, r"handlers\[0\].stream=ext://os.environ"),
    ],
)
def test_what_names_code_is_refused(node, place):
    with pytest.raises(UsageError, match=f"{place}.* would import and run code"):
        refuse_code(node)


def test_hydras_own_parts_are_allowed():
    refuse_code(
        {
            "launcher": {"_target_": "hydra._internal.core_plugins.basic_launcher.BasicLauncher"},
            "callbacks": {"refbias": {"_target_": "refbias.sweep.SweepCallback"}},
            "job_logging": {"handlers": {"x": {"class": "logging.StreamHandler", "stream": "ext://sys.stdout"}}},
        }
    )


@pytest.mark.usefixtures("hydra_restored")
@pytest.mark.parametrize("flags", [[], ["-m"], ["--cfg", "job"]])
def test_a_preset_that_names_a_callback_runs_nothing(tmp_path, monkeypatch, capsys, flags):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "presets" / "experiment").mkdir(parents=True)
    (tmp_path / "presets" / "experiment" / "bad.yaml").write_text(
        "# @package _global_\nhydra:\n  callbacks:\n    x:\n      _target_: os.mkdir\n      path: made\n"
    )
    status = main([*flags, "--config-dir", "presets", "+experiment=bad", "tracking=none"])
    assert status == 2
    assert "hydra.callbacks.x._target_=os.mkdir would import and run code" in capsys.readouterr().err
    assert not (tmp_path / "made").exists()
