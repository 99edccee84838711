"""What a build takes from others: pinned by commit or by hash, above the releases with known holes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from ..building import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "docker" / "requirements.lock").read_text()
HOLES = {
    "aiohttp": "3.14.2",  # GHSA-cq5v-8q36-5273; before it GHSA-mfx4-hv73-q22v, CVE-2025-69223 to -69230, and others
    "cryptography": "49.0.0",  # CVE-2026-69247; before it CVE-2026-34073, CVE-2026-26007, CVE-2024-12797
    "jinja2": "3.1.5",  # CVE-2025-27516
}
"""The last release with a known hole."""


def locked() -> dict[str, str]:
    """The version of each library in the lock."""
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ;]+)", LOCK, re.MULTILINE))


def test_the_lower_bounds_are_above_known_holes() -> None:
    wanted = {each.name: each for each in map(Requirement, PROJECT["dependencies"])}
    assert [name for name, version in HOLES.items() if wanted[name].specifier.contains(version)] == []


def test_the_lock_of_the_image_has_each_dependency_with_hashes_and_names_no_registry() -> None:
    versions = locked()
    for each in map(Requirement, PROJECT["dependencies"]):
        assert each.specifier.contains(versions[each.name]), f"run docker/lock: {each}"
    entries = re.split(r"^(?=[a-z0-9-]+==)", LOCK, flags=re.MULTILINE)[1:]
    assert len(entries) == len(versions)
    assert [each.partition(" ")[0] for each in entries if "--hash=sha256:" not in each] == []
    assert "://" not in LOCK
    assert "--require-hashes --requirement /build/requirements.lock" in (ROOT / "docker" / "Dockerfile").read_text()


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_of_workflows_are_pinned_and_may_write_nothing_unasked(workflow: Path) -> None:
    text = workflow.read_text()
    used = re.findall(r"uses: (.*)", text)
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each)] == []
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}


def test_the_image_of_a_release_is_built_and_tried_on_bases_that_are_pinned_by_digest() -> None:
    named = dict(re.findall(r"^ARG (\w*BASE)=(\S+)$", (ROOT / "docker" / "Dockerfile").read_text(), re.MULTILINE))
    job = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]["image"]
    assert named.keys() == job["env"].keys() == {"BASE", "BUILD_BASE"}
    for name, image in named.items():
        assert re.fullmatch(rf"{re.escape(image)}@sha256:[0-9a-f]{{64}}", job["env"][name])
    (tried,) = [step["env"] for step in job["steps"] if step.get("run") == "docker/test"]
    (pushed,) = [step["with"] for step in job["steps"] if "build-args" in step.get("with", {})]
    for name in named:
        assert f"--build-arg {name}" in tried["BUILD_OPTIONS"]
        assert f"{name}=${{{{ env.{name} }}}}" in pushed["build-args"].splitlines()


def test_workflows_agree_on_the_commit_of_an_action() -> None:
    used = {each for path in WORKFLOWS for each in re.findall(r"uses: ([\w./-]+@\w+)", path.read_text())}
    assert len(used) == len({each.partition("@")[0] for each in used})


def test_tools_of_the_release_are_pinned() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    installed = [word for line in re.findall(r"pip install ([^&\n]*)", text) for word in line.split()]
    assert installed
    assert [word for word in installed if not re.fullmatch(r"\w+==[\d.]+", word)] == []


def test_the_tests_run_on_every_python_that_is_supported() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]
    pythons = jobs["fast"]["strategy"]["matrix"]["python"]
    assert f">={pythons[0]}" == PROJECT["requires-python"]
    assert pythons == [f"3.{minor}" for minor in range(11, 11 + len(pythons))]
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    steps = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    called = [re.fullmatch(r"make ([\w-]+) PYTHON=python( ARGS=.*)?", each) for each in steps]
    assert {None if each is None else each[1] for each in called} <= targets


@pytest.mark.parametrize("file", ["docker-compose.yml", "examples/compose/compose.yml"])
def test_the_containers_of_emubus_have_no_rights_that_they_do_not_need(file: str) -> None:
    services = yaml.safe_load((ROOT / file).read_text())["services"].values()
    own = [each for each in services if each.get("image") == "emubus:latest"]
    assert own
    for each in own:
        assert (each["cap_drop"], each["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
