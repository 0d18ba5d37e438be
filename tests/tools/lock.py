"""Write requirements.lock: every package for every platform, within pyproject.toml.

torch's CUDA packages are left out: they come with those builds of torch that need them.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements.lock"
TORCH = "torch==2.13.0"  # by hand: what the notebooks print was seen with it
LEFT_OUT = ("nvidia-", "cuda-", "triton", "torch==")


def lines() -> list[str]:
    """Name and version of every package, one platform-independent line each."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "uv"]
    subprocess.run(pip, check=True)
    resolve = [
        *[sys.executable, "-m", "uv", "pip", "compile", "--universal", "--quiet"],
        "--python-version=3.11",
        "--extra=lab",
        "--extra=test",
        "--no-annotate",
        "--no-header",
        "--constraint=-",
        str(ROOT / "pyproject.toml"),
    ]
    resolved = subprocess.run(
        resolve, input=f"{TORCH}\n", stdout=subprocess.PIPE, text=True, check=True
    )
    pins = resolved.stdout.splitlines()
    kept = [pin for pin in pins if not pin.startswith(LEFT_OUT)]
    return sorted([*kept, TORCH], key=str.lower)


if __name__ == "__main__":
    LOCK.write_text("\n".join(lines()) + "\n", "utf-8")
