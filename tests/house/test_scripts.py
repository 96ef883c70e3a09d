"""What the Makefile calls: torch without CUDA, the learner's copies, JupyterLab's arguments."""

import importlib.util
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


install_torch = script("install_torch")
lab = script("lab")


def report(version="2.13.0", requires=(), others=()):
    torch = {"metadata": {"name": "torch", "version": version, "requires_dist": list(requires)}}
    return {"install": [torch, *({"metadata": {"name": name, "version": "1"}} for name in others)]}


CUDA_NEED = "nvidia-cublas==13.0.0.19; platform_system == 'Linux'"


@pytest.mark.parametrize(
    ("asked", "cpu"),
    [
        (report(), True),
        (report("2.13.0+cpu", ["filelock", "sympy>=1.13.3"]), True),
        (report(others=["numpy", "jinja2"]), True),
        (report("2.13.0+cu130"), False),
        (report(requires=[CUDA_NEED]), False),
        (report(requires=['triton==3.4.0; sys_platform == "linux"']), False),
        (report(others=["nvidia-cudnn-cu13"]), False),
        (report(requires=["nvidia-cublas; extra == 'cuda'"]), True),
        (report(requires=["nvidia-cublas; platform_system == 'Windows'"]), True),
    ],
)
def test_a_cuda_build_is_told_from_a_cpu_build(monkeypatch, asked, cpu):
    monkeypatch.setattr("sys.platform", "linux")
    assert install_torch.is_cpu_build(asked) is cpu


def test_without_a_gpu_a_cuda_build_is_refused_with_the_ways_out(monkeypatch, capsys):
    import json

    ran = []

    def run(command, **options):
        ran.append(command)
        return subprocess.CompletedProcess(command, 0, json.dumps(report(requires=[CUDA_NEED])), "")

    def missing(name):
        raise install_torch.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("TORCH_INDEX_URL", raising=False)
    monkeypatch.setattr(install_torch.importlib.metadata, "version", missing)
    monkeypatch.setattr(install_torch.subprocess, "run", run)
    monkeypatch.setattr(install_torch, "has_gpu", lambda: False)
    assert install_torch.main() == 1
    assert "TORCH_INDEX_URL" in capsys.readouterr().err
    assert all("--dry-run" in command for command in ran)


def test_copies_never_overwrite_what_a_learner_has(tmp_path):
    source, target = tmp_path / "notebooks", tmp_path / "work"
    (source / "00" / ".ipynb_checkpoints").mkdir(parents=True)
    (source / "00" / ".ipynb_checkpoints" / "00.ipynb").write_text("old")
    (source / "00" / "00.ipynb").write_text("released")
    assert [path.name for path in lab.copy_new(source, target)] == ["00.ipynb"]
    (target / "00" / "00.ipynb").write_text("mine")
    (source / "04").mkdir()
    (source / "04" / "04.ipynb").write_text("new lesson")
    assert [path.name for path in lab.copy_new(source, target)] == ["04.ipynb"]
    assert (target / "00" / "00.ipynb").read_text() == "mine"


def test_jupyterlab_is_told_of_root_of_no_display_and_of_a_port(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("PORT", "8123")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert {"--allow-root", "--no-browser", "--port=8123"} <= set(lab.arguments())
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("DISPLAY", ":0")
    assert not {"--allow-root", "--no-browser"} & set(lab.arguments())


def test_the_two_commands_of_the_readme_are_targets_and_ci_runs_the_second():
    readme, makefile = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    for target in ("lab", "test", "demo"):
        assert f"make {target}" in readme
        assert f"\n{target}:" in makefile
    assert "make test" in (ROOT / ".ci" / "run").read_text()
