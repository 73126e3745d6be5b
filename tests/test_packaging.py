"""The wheel, its requirements, and the files that deploy it."""

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import polyhead
from polyhead.cli import serve
from polyhead.errors import TORCH, install_command

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
DOCKERFILES = ("Dockerfile", "deploy/space/Dockerfile")


def pip(*words):
    command = [sys.executable, "-m", "pip", *map(str, words)]
    return subprocess.check_output(command, text=True, stderr=subprocess.PIPE)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", folder, ROOT)
    return next(folder.glob("polyhead-*.whl"))


def test_the_version_is_that_of_the_newest_section_of_the_changelog():
    heading = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)[1]
    version, _, note = heading.partition(" ")
    assert PROJECT["version"] == version + ".dev0" * (note == "(unreleased)")
    assert PROJECT["version"] == polyhead.__version__


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_package(wheel):
    files = [path for path in (ROOT / "src" / "polyhead").rglob("*") if path.is_file()]
    expected = {path.relative_to(ROOT / "src").as_posix() for path in files}
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == {name for name in expected if "__pycache__" not in name}
    assert any(name.endswith(".js") for name in packed)


@pytest.mark.slow
def test_an_installed_torch_stays_as_it_is(wheel):
    """Without an index pip can only use what is installed: it fails if that does not suffice."""
    report = json.loads(pip("install", "--dry-run", "--quiet", "--no-index", "--report", "-",
                            f"{wheel}[serve,fast,onnx,gguf,hf,tables,vision,png]"))  # fmt: skip
    assert {package["metadata"]["name"] for package in report["install"]} <= {"polyhead"}


@pytest.mark.slow
def test_the_metadata_names_torch_once_and_every_extra(wheel):
    with zipfile.ZipFile(wheel) as files:
        (name,) = (n for n in files.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(files.read(name).decode())
    needed = [Requirement(text) for text in metadata.get_all("Requires-Dist")]
    (torch,) = (requirement for requirement in needed if requirement.name == "torch")
    assert torch == Requirement(TORCH)
    assert set(metadata.get_all("Provides-Extra")) == set(EXTRAS)


def test_the_extra_all_has_every_extra_for_users():
    (everything,) = map(Requirement, EXTRAS["all"])
    assert everything.extras == set(EXTRAS) - {"all", "dev"}
    named = {Requirement(text).name for text in EXTRAS["dev"]}
    for extra in everything.extras - {"tb", "wandb", "mlflow", "ko"}:  # imported by no test
        assert {Requirement(text).name for text in EXTRAS[extra]} <= named, extra


def test_commands_that_install_packages_are_read_alike_by_every_shell():
    quoted = re.fullmatch(r'pip install ("[^"$`!%\\]+" ?)+', install_command("serve"))
    assert quoted
    assert "starlette" in quoted[0]


# Deployment


@pytest.mark.parametrize("name", DOCKERFILES)
def test_images_have_a_user_a_health_check_and_locked_packages_without_torch(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    final = text[text.rindex("\nFROM ") :] if "\nFROM " in text else text
    assert re.search(r"^USER 1000$", final, re.M)
    assert "--require-hashes -r requirements-fast.lock" in text
    assert "torch" not in re.sub(r"#.*", "", text)
    port = re.search(r'"--host", "0.0.0.0", "--port", "(\d+)"\]', final)[1]
    assert f"EXPOSE {port}\n" in final
    assert f"http://127.0.0.1:{port}/health/ready" in final
    for source in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.M):
        for path in source.split():
            assert name != "Dockerfile" or (ROOT / path).exists(), path


def test_the_key_of_an_image_comes_from_the_environment():
    (variable,) = set(re.findall(r'envvar="(\w+)"', Path(serve.__file__).read_text("utf-8")))
    service = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    assert list(service["polyhead"]["environment"]) == [variable]
    assert variable in (ROOT / "deploy/space/README.md").read_text(encoding="utf-8")
    front = (ROOT / "deploy/space/README.md").read_text(encoding="utf-8").split("---\n")[1]
    assert {"sdk": "docker", "app_port": 7860}.items() <= yaml.safe_load(front).items()


def test_images_and_workflows_run_what_is_pinned_by_a_hash():
    for name in DOCKERFILES:
        text = re.sub(r"\\\n\s*", "", (ROOT / name).read_text(encoding="utf-8"))
        for words in re.findall(r"\bpip (?:--python \S+ )?(?:install|wheel) [^&\n]*", text):
            assert re.search("--require-hashes|--no-deps", words), words
            assert "pip wheel" not in words or "--no-build-isolation" in words
            assert not words.endswith(" .") or "pip wheel" in words  # would fetch what builds it
    for path in (ROOT / ".github/workflows").iterdir():
        for action in re.findall(r"uses: (.*)", path.read_text(encoding="utf-8")):
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}  # v[\d.]+", action), action


def test_what_builds_an_image_is_in_the_lock():
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    (names,) = re.findall(r"keep = /\^\(([\w|-]+)\)==/", text)
    needed, seen = ["hatchling"], set()
    while needed:
        name = needed.pop()
        seen.add(name)
        assert re.search(f"^{name}==\\S+ ", lock, re.M), name
        lines = metadata.requires(name) or ()
        needed += [re.match(r"[\w-]+", line)[0] for line in lines if ";" not in line]
    assert seen == set(names.split("|"))


def test_the_workflow_runs_on_three_systems_and_every_python():
    jobs = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8"))["jobs"]
    matrix = jobs["test"]["strategy"]["matrix"]
    assert [system.split("-")[0] for system in matrix["system"]] == ["ubuntu", "macos", "windows"]
    assert set(re.findall(r":: (3\.\d+)", " ".join(PROJECT["classifiers"]))) <= set(
        matrix["python"]
    )
    for path in re.findall(r"\b(?:tests|tools)/[\w./]+", json.dumps(jobs)):
        assert (ROOT / path).exists(), path
