"""Who can't install is told so, and of a failed pip its cause is told."""

import re
import subprocess
import sys

import pytest
import served
import yaml
from common import ROOT

MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
INSTALL = (ROOT / "docs" / "install.md").read_text("utf-8")


def test_this_python_is_served():
    done = subprocess.run([sys.executable, served.__file__], capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (((3, 10), "Linux", "x86_64"), "3.10 is too old"),
        (((3, 15), "Linux", "x86_64"), "3.15 is newer"),
        (((3, 13), "Darwin", "x86_64"), "PyTorch ends at 2.2.2"),
        (((3, 13), "Windows", "arm64"), "tiktoken has no wheel"),
        (((3, 13), "Windows", "win32"), "PyTorch has no wheel"),
        (((3, 13), "Linux", "armv7l"), "PyTorch has no wheel"),
        (((3, 13), "Linux", "x86_64", ("", "")), "glibc 2.28"),
        (((3, 13), "Linux", "x86_64", ("glibc", "2.17")), "glibc 2.28"),
        (((3, 13), "Linux", "x86_64", ("glibc", "2.28"), "pypy"), "is pypy"),
        (((3, 14), "Linux", "x86_64", ("glibc", "2.28"), "free-threaded"), "its lock"),
    ],
)
def test_who_is_not_served_is_told_why(place, words):
    assert words in served.refusal(*place)


@pytest.mark.parametrize("version", [served.OLDEST, served.NEWEST])
@pytest.mark.parametrize("machine", served.SERVED)
def test_who_is_served_is_not_refused(version, machine):
    assert served.refusal(version, *machine, ("glibc", "2.41")) is None


def test_make_the_workflow_and_the_page_name_the_same_pythons():
    oldest, newest = ("{}.{}".format(*x) for x in (served.OLDEST, served.NEWEST))
    text = (ROOT / ".github" / "workflows" / "test.yml").read_text("utf-8")
    (job,) = yaml.safe_load(text)["jobs"].values()
    assert job["strategy"]["matrix"]["python"] == [oldest, newest]
    (tried,) = re.findall(r"^PYTHONS := (.*)$", MAKEFILE, re.M)
    numbers = [int(x) for x in re.findall(r"python3\.(\d+)", tried)]
    assert numbers == [*range(served.NEWEST[1], served.OLDEST[1] - 1, -1)]
    assert (
        f"from {oldest} to {newest}" in MAKEFILE and f"{oldest} to {newest}" in INSTALL
    )


# The ends of pip's logs, as pip 23.2 to 26 write them.
RETRIED = (
    "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError("
    "'<HTTPSConnection>: Failed to establish a new connection: [Errno 111] Connection"
    " refused')': /simple/torch/\n"
)
NONE = (
    "ERROR: Could not find a version that satisfies the requirement torch==2.13.0 (from"
    " versions: none)\nERROR: No matching distribution found for torch==2.13.0\n"
)
OTHERS = NONE.replace("none)", "2.2.0, 2.2.1, 2.2.2)")
BUILDING = (
    "error: subprocess-exited-with-error\nERROR: Failed building wheel for tiktoken\n"
    "ERROR: Failed to build installable wheels for some pyproject.toml based projects\n"
)
FULL = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (RETRIED + NONE, "no network"),
        (OTHERS, "torch has no wheel for"),
        (RETRIED + OTHERS, "torch has no wheel for"),
        (BUILDING, "tiktoken has no wheel for"),
        (NONE, "torch has no wheel for"),
        (f"{RETRIED}{FULL} on device", "disk is full"),
        (RETRIED.replace("Connection refused", "Tunnel connection failed"), "proxy"),
        ("SSLError: CERTIFICATE_VERIFY_FAILED\n" + NONE, "certificate"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES", "download broke off"),
        ("OSError: [Errno 13] Permission denied: 'x.so'", "can't be written"),
        ("ERROR: something new", "pip has failed, and says why above"),
    ],
)
def test_of_a_failed_pip_the_cause_is_told(log, words, tmp_path):
    path = tmp_path / "install.log"
    path.write_text(log)
    done = subprocess.run(
        [sys.executable, served.__file__, path], capture_output=True, text=True
    )
    assert done.stdout.startswith("error: ") and words in done.stdout
