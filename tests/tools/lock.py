"""Write requirements.lock: every package for every platform, within pyproject.toml.

torch's CUDA packages are left out: they come with those builds of torch that need them.
"""

import subprocess
import sys

LEFT_OUT = ("nvidia-", "cuda-", "triton", "torch==")


def lines() -> list[str]:
    """Name and version of every package, one platform-independent line each."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "uv"]
    subprocess.run(pip, check=True)
    resolve = [sys.executable, "-m", "uv", "pip", "compile", "--universal", "--quiet"]
    options = [
        "--python-version=3.11",
        "--extra=lab",
        "--extra=test",
        "--no-annotate",
        "--no-header",
    ]
    command = [*resolve, *options, "--constraint=-", "pyproject.toml"]
    pins = "torch==2.13.0\n"
    done = subprocess.run(command, input=pins, stdout=-1, text=True, check=True)
    kept = [x for x in done.stdout.splitlines() if not x.startswith(LEFT_OUT)]
    return sorted([*kept, pins.strip()], key=str.lower)


if __name__ == "__main__":
    with open("requirements.lock", "w") as lock:
        lock.write("\n".join(lines()) + "\n")
