# SPDX-License-Identifier: Apache-2.0
"""Programs of the system that tests marked `images` need: installed by `make test-images` where it may, named where it may not.

As a program it names the missing packages, then installs them, as root or through sudo; it never asks for a password and never fails.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = {
    "buildah": "buildah",
    "catatonit": "catatonit",
    "chromium": "chromium",
    "mmdebstrap": "mmdebstrap",
    "podman": "podman",
    "proot": "proot",
    "qemu-aarch64-static": "qemu-user-static",
    "runc": "runc",
    "shellcheck": "shellcheck",
    "docker-registry": "docker-registry",
    "skopeo": "skopeo",
    "ip": "iproute2",
    "rsync": "rsync",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
}
"""Which of Debian's packages have the programs."""


def found(program: str) -> str | None:
    """The path of a program: of this Python's environment, else of PATH."""
    return shutil.which(program, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]))


def missing(*programs: str) -> list[str]:
    """The packages of the programs that are not there."""
    return sorted({PACKAGES[one] for one in programs or PACKAGES if found(one) is None})


def command(packages: list[str]) -> list[str]:
    """What installs packages."""
    return ["apt-get", "install", "-y", "--no-install-recommends", *packages]


def demand(*programs: str) -> None:
    """Skip what needs programs that are not there, and say what installs them; with STACK_CI=1 that is a failure."""
    import pytest  # noqa: PLC0415

    lacking = missing(*programs)
    if not lacking:
        return
    reason = f"not run without {', '.join(lacking)}: {' '.join(command(lacking))}"
    if os.environ.get("STACK_CI") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def main() -> None:
    """Install what is missing."""
    lacking = missing()
    if not lacking:
        return
    rights = [] if os.geteuid() == 0 else ["sudo", "-n"]
    said = " ".join(command(lacking))
    if shutil.which("apt-get") is None or (rights and shutil.which("sudo") is None):
        print(f"tests that need {', '.join(lacking)} are skipped; to run them, as root: {said}")
        return
    print(f"installing for the tests: {', '.join(lacking)}", flush=True)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    # A machine that was never asked for packages has no lists of them; old lists name files that have gone.
    done = 1
    for step in (["apt-get", "update"], command(lacking)):
        done = subprocess.run([*rights, *step], stdout=subprocess.DEVNULL, env=environment, check=False).returncode
    if done:
        print(f"tests that need {', '.join(lacking)} are skipped; to run them, as root: {said}")


if __name__ == "__main__":
    sys.exit(main())
