"""pyproject.toml, constraints.txt and environment.yml say the same; the wheel holds what it should."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
#: The names under which conda-forge has what the package index calls otherwise.
CONDA_NAMES = {"torch": "pytorch-cpu", "matplotlib": "matplotlib-base"}


def declared(*extras):
    """The requirements of pyproject.toml: the package's own, then those of its extras."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        tomllib = pytest.importorskip("tomli")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in extras)]
    return {requirement.name: requirement for listed in lists for requirement in map(Requirement, listed)}


def pins():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines if "==" in line)}


def test_every_pin_is_within_its_range_and_everything_that_make_installs_is_pinned():
    pinned = pins()
    for name, requirement in declared("lab", "dev", "finetune", "bench").items():
        assert name in pinned, f"{name} is not pinned"
        assert requirement.specifier.contains(pinned[name]), f"{requirement} does not allow {pinned[name]}"


def test_the_pin_of_torch_names_no_build_so_that_a_cpu_build_satisfies_it():
    assert re.fullmatch(r"\d+\.\d+\.\d+", pins()["torch"])


def conda_requirements():
    text = (ROOT / "environment.yml").read_text()
    entries = re.findall(r"^ +- ([\w.-]+)((?:[<>=!]=?[^\s]+)?)$", text.split("dependencies:")[1], flags=re.MULTILINE)
    return {name: specifier for name, specifier in entries if name not in ("pip", "python")}


def test_conda_users_get_the_same_ranges():
    wanted = {
        CONDA_NAMES.get(name, name): str(requirement.specifier)
        for name, requirement in declared("lab", "dev", "finetune").items()
    }

    def normal(specifiers):
        return {name: sorted(specifier.split(",")) for name, specifier in specifiers.items()}

    assert normal(conda_requirements()) == normal(wanted)


def test_conda_hands_pip_lines_that_it_can_read():
    lines = re.findall(r"^ {6}- (.+)$", (ROOT / "environment.yml").read_text(), flags=re.MULTILINE)
    assert lines[-1] == "-e ."
    assert [Requirement(line).name for line in lines[:-1]] == ["playwright"]


def test_conda_users_get_no_cuda():
    assert "pytorch-cpu" in conda_requirements()


@pytest.mark.slow
def test_the_wheel_holds_both_packages_and_no_lesson_solution_or_test(tmp_path):
    # From a copy: a build leaves files behind, and what an earlier one left would come into the wheel.
    source = tmp_path / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "work", "*.egg-info", "__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(source)]
    subprocess.run(command, check=True, timeout=280)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {"rankzero", "autograder"} <= tops
    assert all(top in ("rankzero", "autograder") or top.endswith(".dist-info") for top in tops)
    assert "autograder/exercises/04_collectives.py" in names
    assert not [name for name in names if name.endswith((".ipynb", ".pyc"))]
