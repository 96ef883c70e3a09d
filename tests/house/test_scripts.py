"""What the Makefile calls: torch without CUDA, the learner's copies, JupyterLab's arguments."""

import importlib.util
import subprocess
import sys
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


def report(version="2.13.0", requires=()):
    return {"install": [{"metadata": {"name": "torch", "version": version, "requires_dist": list(requires)}}]}


CUDA_NEED = "nvidia-cublas==13.0.0.19; platform_system == 'Linux'"


@pytest.fixture
def on_linux(monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")


@pytest.mark.parametrize(
    ("asked", "cpu"),
    [
        (report(), True),
        (report("2.13.0+cpu", ["filelock", "sympy>=1.13.3"]), True),
        (report("2.13.0+cu130"), False),
        (report(requires=[CUDA_NEED]), False),
        (report(requires=['triton==3.4.0; sys_platform == "linux"']), False),
        (report(requires=["cuda-toolkit[cudart,cufft]==13.0.2; platform_system == 'Linux'"]), False),
        (report(requires=["nvidia-cublas; extra == 'cuda'"]), True),
        (report(requires=["nvidia-cublas; platform_system == 'Windows'"]), True),
        (report(requires=["triton; platform_system == 'Linux' and platform_machine == 'aarch64'"]), True),
        (report(requires=["triton; platform_machine == 'aarch64' or platform_machine == 'x86_64'"]), False),
    ],
)
def test_a_cuda_build_is_told_from_a_cpu_build(on_linux, asked, cpu):
    assert install_torch.is_cpu_build(asked) is cpu


@pytest.mark.parametrize(
    ("line", "large"),
    [
        ("  Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl (532.2 MB)", True),
        ("  Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl (1.1 GB)", True),
        ("  Downloading torch-2.13.0%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl (191.8 MB)", False),
        ("  Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl.metadata (29 kB)", False),
        ("Would install torch-2.13.0", False),
    ],
)
def test_a_download_as_large_as_cuda_is_recognised(line, large):
    assert install_torch.is_too_large(line) is large


def pip_that(tmp_path, *lines):
    """A stand-in for pip, which takes the same options."""
    pip = tmp_path / "pip.py"
    pip.write_text("\n".join(["import json, pathlib, sys, time", "path = sys.argv[-2]", *lines]))
    return [sys.executable, str(pip)]


def test_pip_is_stopped_before_it_fetches_cuda(tmp_path):
    fetched = tmp_path / "fetched"
    line = "Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl (532.2 MB)"
    pip = pip_that(
        tmp_path, f"print({line!r}, flush=True)", "time.sleep(60)", f"pathlib.Path({str(fetched)!r}).touch()"
    )
    assert install_torch.ask(pip, "torch==2.13.0") == (None, "")
    assert not fetched.exists()


def test_what_pip_reports_and_how_it_fails_come_back(tmp_path):
    pip = pip_that(tmp_path, f"pathlib.Path(path).write_text(json.dumps({report()!r}))")
    assert install_torch.ask(pip, "torch==2.13.0") == (report(), "")
    pip = pip_that(tmp_path, "sys.exit('No matching distribution found')")
    assert install_torch.ask(pip, "torch==2.13.0") == (None, "No matching distribution found\n")


@pytest.mark.parametrize("asked", [None, report(requires=[CUDA_NEED])])
def test_without_a_gpu_a_cuda_build_is_refused_with_the_ways_out(on_linux, monkeypatch, capsys, asked):
    def run(command, **options):
        pytest.fail(f"was run: {command}")

    monkeypatch.delenv("TORCH_INDEX_URL", raising=False)
    monkeypatch.setattr(install_torch, "installed", lambda: None)
    monkeypatch.setattr(install_torch, "has_gpu", lambda: False)
    monkeypatch.setattr(install_torch, "ask", lambda pip, wanted: (asked, ""))
    monkeypatch.setattr(install_torch.subprocess, "run", run)
    assert install_torch.main() == 1
    assert "TORCH_INDEX_URL" in capsys.readouterr().err


def test_an_index_that_was_named_is_used_without_asking(monkeypatch):
    ran = []

    def run(command, **options):
        ran.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setenv("TORCH_INDEX_URL", "https://example.org/cpu")
    monkeypatch.setattr(install_torch, "ask", lambda *_: pytest.fail("pip was asked"))
    monkeypatch.setattr(install_torch.subprocess, "run", run)
    assert install_torch.install("torch==2.13.0") == 0
    assert ran[0][-4:] == ["--no-deps", "--index-url", "https://example.org/cpu", "torch==2.13.0"]
    assert "--index-url" not in ran[1]


def test_a_torch_of_the_learners_own_is_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(install_torch, "installed", lambda: "2.11.0+cu130")
    monkeypatch.setattr(install_torch, "install", lambda _: pytest.fail("torch was replaced"))
    monkeypatch.setattr(install_torch.sys, "prefix", str(tmp_path))
    assert install_torch.main() == 0
    pins = (tmp_path / "constraints.txt").read_text().splitlines()
    assert "torch==2.11.0+cu130" in pins
    given = install_torch.CONSTRAINTS.read_text().splitlines()
    assert [pin for pin in pins if pin not in given] == ["torch==2.11.0+cu130"]


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


def test_jupyterlab_opens_on_lesson_00():
    assert f"--LabApp.default_url=/lab/tree/{lab.FIRST}" in lab.arguments()
    assert lab.FIRST == "work/00_start_here/00_start_here.ipynb"


def test_the_two_commands_of_the_readme_are_targets_and_ci_runs_the_second():
    readme, makefile = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    for target in ("lab", "test", "demo"):
        assert f"make {target}" in readme
        assert f"\n{target}:" in makefile
    assert "make test" in (ROOT / ".ci" / "run").read_text()
