# SPDX-License-Identifier: Apache-2.0
"""Signatures of verdicts: OpenSSH's own (`ssh-keygen -Y`), with the keys that maintainers have already.

A signature lies beside its file (`FILE.sig`) and covers its bytes. Whose keys count stands in a file of the form
allowed_signers, as git uses it for commits (see ssh-keygen(1), ALLOWED SIGNERS).
"""

import subprocess
from pathlib import Path

from stack.base.errors import StackError
from stack.store import cache as places

NAMESPACE = "stack-verdict"
"""What the signature is for: one made for something else, such as a commit, is refused."""


def place(file: Path) -> Path:
    """Where the signature of a file lies."""
    return file.with_name(f"{file.name}.sig")


def sign(file: Path, key: Path) -> Path:
    """Sign a file with a private key (or the public one of an agent's); returns the signature's place.

    Raises:
        StackError: ssh-keygen is missing or refused.

    """
    done = _ssh_keygen(file.read_bytes(), "-Y", "sign", "-n", NAMESPACE, "-f", str(key))
    if done.returncode:
        raise StackError(f"{file} was not signed: {_said(done)}", "name a private key of OpenSSH with --key")
    places.put(place(file), done.stdout)
    return place(file)


def verify(file: Path, data: bytes, signers: Path) -> str:
    """Who signed `data`, which `file` had when it was read, of those whom `signers` allows.

    Raises:
        StackError: it is not signed, not by them, or has changed since; or ssh-keygen is missing.

    """
    signature = place(file)
    if not signature.is_file():
        raise StackError(f"{file} is not signed", f"sign it: stack verdict sign {file.name} --key KEY")
    arguments = ("-f", str(signers), "-s", str(signature))
    found = _ssh_keygen(data, "-Y", "find-principals", *arguments)
    names = found.stdout.decode("utf-8", "replace").split("\n")[0].split(",")
    if found.returncode or not names[0]:
        raise StackError(f"{file} is signed by nobody in {signers}", "have one of them sign it")
    done = _ssh_keygen(data, "-Y", "verify", "-n", NAMESPACE, "-I", names[0], *arguments)
    if done.returncode:
        # OpenSSH finds the first name of a key, which may be allowed to sign something else only.
        remedy = f"have it signed again, or give its key one name in {signers}"
        raise StackError(f"the signature of {file} does not hold: {_said(done)}", remedy)
    return names[0]


def _ssh_keygen(data: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["ssh-keygen", *arguments], input=data, capture_output=True, check=False)
    except FileNotFoundError as missing:
        raise StackError("ssh-keygen is missing", "install openssh-client") from missing


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = (done.stderr or done.stdout).decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in lines if line.strip()), "no message")
