"""``rankzero doctor``: it tells, mends, and survives machines that are odd."""

import json
import subprocess
import sys

import pytest

from rankzero import cli, machine


def test_this_machine_has_what_a_learner_needs():
    done = subprocess.run([sys.executable, "-m", "rankzero.cli", "doctor", "--json"], capture_output=True, text=True)
    told = json.loads(done.stdout)
    assert done.returncode == 0
    assert told["ok"] is True
    assert {"Python", "torch", "ranks", "GPUs", "sandbox", "browser"} <= {
        finding["name"] for finding in told["findings"]
    }


def test_plain_text_has_no_colour_and_names_the_mend():
    findings = machine.Findings([machine.Finding("torch", "missing", "not installed", "pip install torch")])
    assert "\x1b" not in findings.text()
    assert "\x1b[31m" in findings.text(colour=True)
    assert "pip install torch" in findings.text()
    assert not findings.ok
    assert "<code>pip install torch</code>" in findings._repr_html_()


@pytest.mark.parametrize("name", sorted(machine._LOOKS))
def test_a_look_that_fails_is_told_and_is_no_crash(monkeypatch, name):
    def broken():
        raise OSError("odd machine")

    monkeypatch.setattr(machine, "_LOOKS", {name: broken})
    found = machine.doctor()
    (finding,) = found.findings
    assert "odd machine" in finding.detail
    assert found.ok is (name not in machine.NEEDED)


def test_what_cannot_be_looked_at_without_torch_says_so(monkeypatch):
    def broken():
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(machine, "_LOOKS", {"backends": broken, "GPUs": broken})
    found = machine.doctor().findings
    assert [finding.state for finding in found] == ["missing", "optional"]
    assert all("without torch" in finding.detail for finding in found)


def test_a_missing_bubblewrap_is_named_with_its_command(monkeypatch):
    monkeypatch.setattr(machine.shutil, "which", lambda name: None)
    assert machine._sandbox()[0] == "optional"
    assert "apt-get install bubblewrap" in machine._sandbox()[2]


@pytest.mark.parametrize("arguments", [["--json"], ["no_such_command", "--json"], ["doctor", "--json", "--no-such"]])
def test_bad_options_are_json_where_json_was_asked_for(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert set(json.loads(capsys.readouterr().out)) == {"error"}


def test_help_needs_no_torch():
    script = (
        "import sys, rankzero.cli\ntry:\n    rankzero.cli.main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False"
    assert "doctor" in done.stdout
