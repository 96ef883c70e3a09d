"""A real JupyterLab and a real Chromium for the browser tests."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Looked at by people after a run; not kept in the repository.
SCREENSHOTS = Path(__file__).parent / "screenshots"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.slow)
            if CHROMIUM is None:
                item.add_marker(pytest.mark.skip(reason="no Chromium here: sudo apt-get install chromium"))


@pytest.fixture(scope="session")
def course(tmp_path_factory):
    """The course as a fresh clone has it, in a folder that the tests may write to."""
    folder = tmp_path_factory.mktemp("desk") / "course"
    kept = ("autograder", "lessons", "notebooks", "rankzero", "scripts", "solutions", "nbgrader_config.py")
    folder.mkdir()
    for name in kept:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"))
        else:
            shutil.copyfile(source, folder / name)
    return folder


def write_settings(home, name, settings):
    path = home / ".jupyter/lab/user-settings/@jupyterlab" / f"{name}.jupyterlab-settings"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings))


@pytest.fixture(scope="session")
def lab(course):
    """The address of a JupyterLab that ``scripts/lab.py`` started, as ``make lab`` does."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    home = course.parent / "home"
    # Cells outside of the window stay in the page, so that they can be found; no question about news covers them.
    write_settings(home, "notebook-extension/tracker", {"windowingMode": "none"})
    write_settings(home, "apputils-extension/notification", {"fetchNews": "false", "checkForUpdates": False})
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")},
        "PORT": str(port),
        "HOME": str(home),
        "JUPYTER_TOKEN": "desk",
        "PYTHONPATH": str(course),
    }
    command = [sys.executable, "scripts/lab.py"]
    with open(course.parent / "jupyter.log", "w") as log:
        server = subprocess.Popen(command, cwd=course, env=environment, stdout=log, stderr=log, start_new_session=True)
    address = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(f"{address}/api/status?token=desk", timeout=5)
            break
        except OSError:
            assert server.poll() is None, (course.parent / "jupyter.log").read_text()
            assert time.monotonic() < deadline, (course.parent / "jupyter.log").read_text()
            time.sleep(0.2)
    yield address
    server.terminate()
    try:
        server.wait(timeout=15)
    except subprocess.TimeoutExpired:
        server.kill()


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        options = ["--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run"]
        if os.geteuid() == 0:
            options.append("--no-sandbox")
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser):
    context = browser.new_context(viewport={"width": 1280, "height": 900}, device_scale_factor=1)
    page = context.new_page()
    page.set_default_timeout(60_000)
    yield page
    context.close()
