"""Say why an environment can't be made: by this Python, or after pip has failed.

It runs on whatever Python a reader has, so nothing here is newer than 3.6.
`python served.py` exits with 1 and a line where this Python isn't served. `python
served.py LOG` explains the end of a pip that wrote this log.
"""

import platform
import re
import sys
import sysconfig

OLDEST = (3, 11)
NEWEST = (3, 14)
# Where the packages of requirements.lock have wheels.
SERVED = [
    ("Linux", "x86_64"),
    ("Linux", "aarch64"),
    ("Darwin", "arm64"),
    ("Windows", "amd64"),
]
GLIBC = (2, 28)
NO_WHEEL = "{package} has no wheel for {here}: docs/install.md says who is served"
# The words of pip, and what they say of the cause; the first that fits is it.
CAUSES = [
    (
        r"No space left on device|Disk quota exceeded",
        "the disk is full: the environment takes 6 GB, and pip needs as much again"
        " for temporary files (TMPDIR says where)",
    ),
    (
        r"Tunnel connection failed|ProxyError|407 Proxy",
        "the proxy refuses: is HTTPS_PROXY right, with name and password?",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLError",
        "the package index has a certificate that Python doesn't know: behind a proxy"
        " that reads along set PIP_CERT to the proxy's",
    ),
    (
        r"DO NOT MATCH THE HASHES|IncompleteRead|ChunkedEncodingError|ReadTimeout",
        "a download broke off: run the same again; what was fetched stays",
    ),
    # The index has answered: of such a package it has other versions, or its source.
    (r"from versions: (?!none)|Failed building wheel|metadata-generation", NO_WHEEL),
    (
        r"NewConnectionError|ConnectTimeout|NameResolutionError|ConnectionError"
        r"|Connection refused|Network is unreachable|getaddrinfo failed",
        "there is no network to the package index (behind a proxy set HTTPS_PROXY):"
        " mend that, and run the same again; what was fetched stays",
    ),
    (
        r"Permission denied|Access is denied|WinError 5",
        "a file can't be written: is a notebook of this environment still open, or does"
        " the folder belong to somebody else?",
    ),
    (r"No matching distribution|ResolutionImpossible|not a supported wheel", NO_WHEEL),
]
PACKAGE = (
    r"(?:No matching distribution found for|satisfies the requirement"
    r"|Failed building wheel for|Cannot install) ([\w.-]+)"
)


def here():
    """This Python and its machine, in words."""
    version = "{}.{}".format(*sys.version_info)
    return f"Python {version} on {platform.system()} ({machine()})"


def machine():
    """The processor that this Python was built for; on Windows it may imitate one."""
    if platform.system() == "Windows":
        return sysconfig.get_platform().replace("win-", "")
    return platform.machine()


def refusal(version, system, processor, libc=("glibc", "2.28"), kind="cpython"):
    """Why such a Python isn't served, or None."""
    name = "Python {}.{}".format(*version)
    if kind != "cpython":
        return f"{name} is {kind}: the packages have wheels for CPython with its lock"
    if version < OLDEST:
        return f"{name} is too old: 3.11 or newer is needed"
    if version > NEWEST:
        return f"{name} is newer than the packages' wheels: 3.14 is the newest served"
    if (system, processor) == ("Darwin", "x86_64"):
        return (
            f"{name} runs on Intel's processor, for which PyTorch ends at 2.2.2: on a"
            " Mac with Apple's install a Python for that, on another use a browser"
        )
    if (system, processor) == ("Windows", "arm64"):
        return (
            f"{name} is for Windows on ARM, for which tiktoken has no wheel: install"
            " the one for x86-64, which Windows runs there, too"
        )
    if (system, processor) not in SERVED:
        return f"{name} runs on {system} ({processor}), for which PyTorch has no wheel"
    if system == "Linux":
        numbers = tuple(int(part) for part in re.findall(r"\d+", libc[1])[:2])
        if libc[0] != "glibc" or numbers < GLIBC:
            return f"{name} runs on a Linux without glibc 2.28 or newer, as Alpine does"
    return None


def refused():
    """Why this Python isn't served, or None."""
    kind = sys.implementation.name if hasattr(sys, "implementation") else "cpython"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        kind = "free-threaded"
    libc = platform.libc_ver()
    words = refusal(sys.version_info[:2], platform.system(), machine(), libc, kind)
    if words is None:
        try:
            import ensurepip  # noqa: F401
            import venv  # noqa: F401
        except ImportError:
            words = f"{here()} has no venv: with apt install python3-venv"
    return words


def cause(log):
    """What a pip has died of, by the log that it wrote."""
    for pattern, words in CAUSES:
        if re.search(pattern, log):
            found = re.findall(PACKAGE, log)
            package = found[-1].rstrip(".") if found else "a package"
            return words.format(package=package, here=here())
    return "pip has failed, and says why above"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        with open(sys.argv[1], "rb") as file:
            print("error: " + cause(file.read().decode("utf-8", "replace")))
    else:
        found = refused()
        if found:
            print(found)
            sys.exit(1)
