# SPDX-License-Identifier: Apache-2.0
"""Sign and verify verdicts with OpenSSH (`ssh-keygen -Y`) and the keys that maintainers already have.

The signature of FILE is FILE.sig and covers its bytes. Allowed keys are listed in a file of the format allowed_signers, which git
also uses for commits (see ssh-keygen(1), ALLOWED SIGNERS).
"""

import subprocess
from pathlib import Path

from stack.base.errors import StackError
from stack.store import cache as places

NAMESPACE = "stack-verdict"
"""The purpose of the signature: a signature for another purpose, such as a commit, is refused."""


def place(file: Path) -> Path:
    """Return the path of a file's signature."""
    return file.with_name(f"{file.name}.sig")


def sign(file: Path, key: Path) -> Path:
    """Sign a file with a private key, or with the public key of a key that ssh-agent holds; return the signature's path.

    Raises:
        StackError: ssh-keygen is missing or failed.

    """
    done = _ssh_keygen(file.read_bytes(), "-Y", "sign", "-n", NAMESPACE, "-f", str(key))
    if done.returncode:
        raise StackError(f"{file} was not signed: {_first_line(done)}", "name a private key of OpenSSH with --key")
    places.put(place(file), done.stdout)
    return place(file)


def verify(file: Path, data: bytes, signers: Path) -> str:
    """Verify the signature of `data`, the content of `file` when it was read, and name the signer, whom `signers` must allow.

    Raises:
        StackError: it is not signed, or not by an allowed signer; it has changed since; or ssh-keygen is missing.

    """
    signature = place(file)
    if not signature.is_file():
        raise StackError(f"{file} is not signed", f"sign it: stack verdict sign {file.name} --key KEY")
    arguments = ("-f", str(signers), "-s", str(signature))
    found = _ssh_keygen(data, "-Y", "find-principals", *arguments)
    names = found.stdout.decode("utf-8", "replace").split("\n")[0].split(",")
    if found.returncode or not names[0]:
        raise StackError(f"{file} is not signed by anyone in {signers}", "have one of them sign it")
    done = _ssh_keygen(data, "-Y", "verify", "-n", NAMESPACE, "-I", names[0], *arguments)
    if done.returncode:
        # OpenSSH reports the first name of a key in the file, which may be allowed for another purpose only.
        remedy = f"have it signed again, or give its key one name in {signers}"
        raise StackError(f"the signature of {file} does not hold: {_first_line(done)}", remedy)
    return names[0]


def _ssh_keygen(data: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["ssh-keygen", *arguments], input=data, capture_output=True, check=False)
    except FileNotFoundError as missing:
        raise StackError("ssh-keygen is missing", "install openssh-client") from missing


def _first_line(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = (done.stderr or done.stdout).decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in lines if line.strip()), "no message")
