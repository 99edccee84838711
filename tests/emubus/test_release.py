"""What a release is made of: the scripts in release/ and docker/, the workflow that calls them, the compose file."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from emubus.config import JSON_VARIABLE, MOUNTED_CONFIG_FILE, OPTIONS

from ..building import ROOT
from ..programs import PROGRAM_S_MAX

WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"
SCRIPTS = ("release/dist", "release/try", "release/notes", "docker/test")


def notes(version: str) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "release" / "notes"), version]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PROGRAM_S_MAX)


def test_the_notes_of_a_release_are_the_part_of_the_changelog_about_it() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    done = notes(version)
    assert done.returncode == 0
    assert "\n* " in done.stdout
    assert done.stdout.strip() in (ROOT / "CHANGELOG.md").read_text()
    assert "\n## " not in done.stdout


def test_a_version_without_notes_is_no_release() -> None:
    done = notes("0.0.0")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "release/notes: CHANGELOG.md has no version 0.0.0\n"


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_can_be_run_and_is_understood_by_the_shell(script: str) -> None:
    path = ROOT / script
    assert path.stat().st_mode & 0o111
    assert subprocess.run(["bash", "-n", str(path)], check=False, timeout=PROGRAM_S_MAX).returncode == 0


def jobs() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    return loaded


def test_the_workflow_builds_for_four_machines_and_its_scripts_exist() -> None:
    machines = [each["name"] for each in jobs()["wheels"]["strategy"]["matrix"]["include"]]
    assert machines == ["linux-x86_64", "linux-arm64", "macos-arm64", "macos-x86_64"]
    commands = "\n".join(step.get("run", "") for job in jobs().values() for step in job["steps"])
    called = set(re.findall(r"(?:^|\s)((?:release|docker)/\w+)", commands))
    assert {"release/notes", "release/try", "docker/test"} <= called
    assert [name for name in called if not (ROOT / name).is_file()] == []


def test_each_job_of_the_workflow_waits_for_jobs_that_exist() -> None:
    needed = {name: job.get("needs", []) for name, job in jobs().items()}
    waited = {name: [each] if isinstance(each, str) else each for name, each in needed.items()}
    assert [each for names in waited.values() for each in names if each not in waited] == []
    assert set(waited["publish"]) == set(waited) - {"publish"}


def test_the_image_gets_the_labels_that_the_dockerfile_takes() -> None:
    (push,) = (step for step in jobs()["image"]["steps"] if "build-push-action" in step.get("uses", ""))
    given = {line.partition("=")[0] for line in push["with"]["build-args"].splitlines()}
    text = (ROOT / "docker" / "Dockerfile").read_text()
    taken = set(re.findall(r"^ARG (\w+)=", text, re.MULTILINE)) - set(
        re.findall(r"^FROM \$\{(\w+)\}", text, re.MULTILINE)
    )
    assert given == taken | {"BASE", "BUILD_BASE"}  # by digest, where the Dockerfile has tags
    assert push["with"]["sbom"] is True


# ---------------------------------------------------------------- the image and its compose file


def stages() -> list[list[str]]:
    """The instructions of each stage of the Dockerfile, one line each."""
    text = (ROOT / "docker" / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    starts = [number for number, line in enumerate(lines) if line.startswith("FROM ")]
    return [lines[start:end] for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)]


def test_a_change_of_the_source_leaves_the_layer_of_the_libraries() -> None:
    libraries, build, shipped = stages()
    assert [line.split()[1] for line in libraries if line.startswith("COPY ")] == ["docker/requirements.lock"]
    assert [line for line in shipped if line.startswith("COPY ")] == [
        "COPY --from=libraries /opt/emubus /opt/emubus",
        "COPY --from=build /made /opt/emubus",
    ]
    copied = {line.split()[1] for line in build if line.startswith("COPY ")}
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]
    assert {folder.split("/")[0] for folder in packages.values()} <= copied
    (user,) = (line for line in shipped if line.startswith("USER "))
    assert user == "USER 10001:0"


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return loaded


def test_without_a_profile_compose_opens_two_ports_of_this_machine_only() -> None:
    services = {name: service for name, service in compose()["services"].items() if "profiles" not in service}
    assert list(services) == ["emulator"]
    ports = services["emulator"]["ports"]
    assert [re.sub(r"\$\{\w+:-([^}]+)\}", r"\1", each) for each in ports] == [
        "127.0.0.1:5672:5672",
        "127.0.0.1:5300:5300",
    ]
    assert "EMUBUS_TLS" not in services["emulator"]["environment"]


def test_the_profile_tls_leads_the_usual_ports_to_those_of_the_emulator() -> None:
    service = compose()["services"]["tls"]
    assert service["profiles"] == ["tls"]
    shown = [re.sub(r"\$\{\w+:-([^}]+)\}", r"\1", each) for each in (*service["ports"], *service["command"])]
    assert shown == ["127.0.0.1:443:443", "127.0.0.1:5671:5671", "443=emulator:5300", "5671=emulator:5672"]
    (script,) = (each.split(":")[0] for each in service["volumes"] if "tls_ports" in each)
    assert (ROOT / script).is_file()


def test_compose_sets_variables_that_the_server_reads() -> None:
    known = {variable for option in OPTIONS for variable in option.variables}
    assert set(compose()["services"]["emulator"]["environment"]) <= known


def test_the_page_of_the_image_names_variables_that_the_server_reads_and_those_that_the_image_sets() -> None:
    page = (ROOT / "docs" / "IMAGE.md").read_text()
    known = {variable for option in OPTIONS for variable in option.variables} | {JSON_VARIABLE}
    assert set(re.findall(r"\b(?:EMUBUS|EMULATOR)_[A-Z_]+", page)) <= known | {"EMUBUS_ADDRESS"}  # of compose
    (environment,) = (line for line in stages()[-1] if line.startswith("ENV "))
    set_by_image = dict(re.findall(r"(EMUBUS_\w+)=(\S+)", environment))
    assert dict(re.findall(r"^\| `(EMUBUS_\w+)` \| `(\S+)` \| set by the image", page, re.MULTILINE)) == set_by_image


def test_the_folder_of_a_mounted_configuration_is_in_the_image() -> None:
    assert any(f"install --directory {MOUNTED_CONFIG_FILE.parent}" in line for line in stages()[-1])


def test_without_an_index_the_image_takes_at_least_the_versions_of_the_lock(tmp_path: Path) -> None:
    (step,) = (line for line in stages()[0] if line.startswith("RUN if "))
    commands = re.findall(r"sed -n '([^']+)'", step)
    assert len(commands) == 1
    lock = ROOT / "docker" / "requirements.lock"
    done = subprocess.run(["sed", "-n", commands[0], str(lock)], capture_output=True, text=True, check=True)
    versions = dict(re.findall(r"^([a-z0-9-]+)==(\S+) ", lock.read_text(), re.MULTILINE))
    assert versions
    assert dict(line.split(">=") for line in done.stdout.splitlines()) == versions


def test_the_health_check_asks_often_while_the_server_starts() -> None:
    (check,) = (line for line in stages()[-1] if line.startswith("HEALTHCHECK "))
    assert "--interval=1s" in check
    assert json.loads(check.partition(" CMD ")[2]) == ["emubus", "health", "--hold", "9"]
