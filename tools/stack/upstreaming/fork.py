# SPDX-License-Identifier: Apache-2.0
"""The user's fork of an upstream: which one is meant, what stands there, and pushing to it.

Only git talks to it, with the credentials that git has: a helper, an agent, or what the user types at git's own prompt.
"""

import ipaddress
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from stack.base.addresses import redacted
from stack.base.errors import StackError
from stack.base.text import printable
from stack.model.ids import CommitId
from stack.model.pins import Pin, Pins
from stack.store import git, repository

_PATIENCE = ("-c", "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=120")
"""A server that says nothing at all for two minutes is gone; one whose hooks take long sends a byte now and then."""
_SCP = re.compile(r"(?:[^/@:]+@)?(?P<host>[^/@:]+|\[[0-9a-fA-F:]+\]):(?!//)(?P<path>.+)")
"""`git@host:path`, git's short form of an ssh address."""
_HELPER = re.compile(r"[\w+.-]+::")
"""A program of git's own: `ext::` runs what follows, `fd::` waits for a file that is open."""
_ADVERTISED = re.compile(r"([0-9a-f]{40})\t(refs/[^\t]+)")
_ANSWER = re.compile(r"(?P<flag>[ +*!=-])\t(?P<source>[^\t:]*):(?P<ref>[^\t]+)\t(?P<said>.*)")
_REASON = re.compile(r"\[[^\]]*\] \((?P<reason>.*)\)|\[[^\]]*\](?P<bare>.*)")


@dataclass(frozen=True, slots=True)
class Fork:
    """A fork by its address as git takes it; `str` of it may be shown to anyone."""

    upstream: str
    address: str

    def __str__(self) -> str:
        return redacted(self.address)

    @property
    def local(self) -> bool:
        """Whether it is on this machine: nobody else gets what is pushed there."""
        scheme = urlsplit(self.address).scheme
        if scheme == "file" or (not scheme and not _SCP.fullmatch(self.address)):
            return True
        host = _host(self.address)
        try:
            return host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class Move:
    """A ref to point at a commit, where it is at `expected` now: None where it must not be there yet."""

    ref: str
    commit: CommitId
    expected: CommitId | None = None


def named(given: Sequence[str], pins: Pins, wanted: Sequence[str], root: Path, store: Path) -> dict[str, Fork]:
    """The fork of each upstream that is pushed to.

    Args:
        given: `[UPSTREAM=]REMOTE` each: an address, an account's address that ends in a slash, or a remote of the stack's own git.
        pins: the stack's pins.
        wanted: upstreams that have something to push.
        root: the stack's folder.
        store: a repository to ask git in.

    Raises:
        StackError: a name is unknown, or it is not clear which fork is whose.

    """
    found: dict[str, Fork] = {}
    for one in given:
        names, remote = _split(one, pins, wanted)
        if len(names) > 1 and not remote.endswith("/"):
            raise StackError(
                f"--push {redacted(remote)} is one repository for {', '.join(names)}",
                "write --push UPSTREAM=REMOTE for each, or the address of your account with a slash at its end",
            )
        for name in names:
            if name in found:
                raise StackError(f"two forks of {name} are named", "name one")
            found[name] = _fork(pins.get(name), remote, root, store)
    return found


def _split(given: str, pins: Pins, wanted: Sequence[str]) -> tuple[Sequence[str], str]:
    name, equals, remote = given.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        return wanted, given
    pins.get(name)  # or there is no such upstream
    if name not in wanted:
        raise StackError(f"there is no pull request of {name} to push", "see the plan: stack export-pr")
    return (name,), remote


def _fork(pin: Pin, remote: str, root: Path, store: Path) -> Fork:
    address = remote
    if remote.endswith("/"):
        address = remote + pin.git.rstrip("/").rpartition("/")[2]
    elif not _is_address(remote):
        address = _of_the_stack(root, remote)
    fork = Fork(pin.upstream, _rewritten(store, _readable(address)))
    if _plain(fork.address) == _plain(pin.git):
        raise StackError(f"{fork} is upstream itself", "push to your own fork of it")
    return fork


def _readable(address: str) -> str:
    try:
        host = urlsplit(address).hostname
    except ValueError:
        host = None
        address = ""
    if not address or _HELPER.match(address) or any((one or "").startswith("-") for one in (address, host)):
        raise StackError("what --push names is no address", "write it as git takes it: https://…, ssh://… or git@host:path")
    return address


def _is_address(remote: str) -> bool:
    return "://" in remote or remote.startswith((".", "/", "~")) or _SCP.fullmatch(remote) is not None


def _of_the_stack(root: Path, name: str) -> str:
    asked = git.run(["remote", "get-url", "--push", "--", name], cwd=root, user_config=True, accept=(0, 2, 128, 129))
    if asked.returncode:
        raise StackError(
            f"the stack's git has no remote {name!r}", "name one (`git remote -v`), or the address of your fork of the upstream"
        )
    return asked.stdout.decode("utf-8", "surrogateescape").removesuffix("\n").partition("\n")[0]


def _rewritten(store: Path, address: str) -> str:
    """The address that git pushes to by the user's `url.<base>.pushInsteadOf` and the like; one with a secret is not written down."""
    if urlsplit(address).scheme in ("http", "https") and urlsplit(address).username is not None:
        return address
    with repository.incoming(store) as place:
        git.run(["config", "--file", str(place / "config"), "remote.fork.url", address])
        return git.text(["remote", "get-url", "--push", "fork"], env={"GIT_DIR": str(place)})


def _host(address: str) -> str:
    short = None if "://" in address else _SCP.fullmatch(address)
    try:
        return (short["host"].strip("[]") if short else urlsplit(address).hostname or "").lower()
    except ValueError:
        return ""


def _plain(address: str) -> tuple[str, str]:
    """Host and path, however they are written."""
    short = None if "://" in address else _SCP.fullmatch(address)
    path = short["path"] if short else urlsplit(address).path
    return _host(address), path.strip("/").removesuffix(".git").lower()


def look(store: Path, fork: Fork, branches: Sequence[str]) -> Mapping[str, CommitId]:
    """Where some branches stand in the fork, and the tags below their names.

    Raises:
        StackError: the fork cannot be read.

    """
    patterns = [pattern for name in branches for pattern in (f"refs/heads/{name}", f"refs/tags/{name}/*")]
    said = _ask(store, fork, ["ls-remote", "--quiet", "--refs", fork.address, *patterns])
    found = (_ADVERTISED.fullmatch(line) for line in said.splitlines())
    return {one[2]: CommitId(one[1]) for one in found if one}


def bring(place: Path, fork: Fork, commit: CommitId, *, contents: bool = False) -> None:
    """Bring a commit of the fork into a throw-away repository, with its history.

    Raises:
        StackError: the fork cannot be read, or does not give it.

    """
    asked = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"]
    _ask(place, fork, [*asked, *([] if contents else ["--filter=blob:none"]), fork.address, f"{commit}:refs/heads/theirs"])


def has(store: Path, fork: Fork, commit: CommitId) -> bool:
    """Whether the fork has a commit, under a branch or not: then nothing below it has to be sent.

    Raises:
        StackError: the fork cannot be read.

    """
    asked = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--negotiate-only", f"--negotiation-tip={commit}"]
    try:
        return commit in _git(store, [*asked, fork.address]).splitlines()
    except git.GitError as failed:
        if "protocol v2" in failed.stderr:
            # An old server cannot be asked. What it lacks is sent.
            return True
        raise problem(fork, failed) from failed


def push(store: Path, fork: Fork, moves: Sequence[Move], held: Sequence[int] = ()) -> Mapping[str, str]:
    """Point refs of the fork at commits, all or none where the fork can do that; each only where it stands as expected.

    Args:
        store: the repository that has the commits.
        fork: where they go.
        moves: the refs.
        held: locks that git keeps, should it outlive this process: what is on its way is not touched until it has arrived.

    Returns:
        Why a ref was not moved, by its name.

    Raises:
        StackError: nothing is known of what became of it: the connection failed, or git did.

    """
    order = ["push", "--porcelain", "--no-verify", "--no-follow-tags", "--recurse-submodules=no"]
    leases = [f"--force-with-lease={move.ref}:{move.expected or ''}" for move in moves]
    specs = [f"{move.commit}:{move.ref}" for move in moves]
    try:
        return _push(store, [*order, "--atomic", *leases, fork.address, *specs], held)
    except git.GitError as failed:
        if "does not support --atomic" not in failed.stderr:
            raise problem(fork, failed) from failed
    try:
        return _push(store, [*order, *leases, fork.address, *specs], held)
    except git.GitError as failed:
        raise problem(fork, failed) from failed


def _push(store: Path, args: Sequence[str], held: Sequence[int]) -> Mapping[str, str]:
    # What the fork has may stand under no branch of it (forges keep forks of one project together): git asks first, and
    # sends little. In a store without file contents it would have to fetch all that it sends.
    done = _run(store, ["-c", "push.negotiate=true", *args], accept=(0, 1), held=held)
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    answers = [answer for answer in map(_ANSWER.fullmatch, lines) if answer]
    if done.returncode and not answers:
        raise git.GitError(args, done.returncode, done.stderr.decode("utf-8", "replace"))
    return {answer["ref"]: _reason(answer["said"]) for answer in answers if answer["flag"] == "!"}


def _reason(said: str) -> str:
    found = _REASON.fullmatch(said)
    reason = printable((found["reason"] or found["bare"] or "").strip() if found else said)
    known = {
        "stale info": "somebody changed it meanwhile: run it again",
        "fetch first": "somebody changed it meanwhile: run it again",
        "atomic push failed": "not pushed: the fork takes all or none",
        "atomic transaction failed": "not pushed: the fork takes all or none",
        "atomic push failure": "not pushed: the fork takes all or none",
    }
    return known.get(reason, reason or "the fork refused it")


def _ask(store: Path, fork: Fork, args: Sequence[str]) -> str:
    try:
        return _git(store, args)
    except git.GitError as failed:
        raise problem(fork, failed) from failed


def _git(store: Path, args: Sequence[str]) -> str:
    return _run(store, args).stdout.decode("utf-8", "surrogateescape")


def _run(
    store: Path, args: Sequence[str], accept: Sequence[int] = (0,), held: Sequence[int] = ()
) -> subprocess.CompletedProcess[bytes]:
    place = {"GIT_DIR": str(store), **_prompting()}
    return git.run([*_PATIENCE, *args], env=place, accept=accept, held=held)


def _prompting() -> Mapping[str, str]:
    """Whether git may ask for a password: on a terminal as the user has it set, never without one."""
    if not sys.stdin.isatty():
        return {}
    return {"GIT_TERMINAL_PROMPT": os.environ.get("GIT_TERMINAL_PROMPT", "1")}


def problem(fork: Fork, failed: git.GitError) -> StackError:
    """What a failure of git means for the user; the address is shown without its password."""
    said = printable(_without_secrets(failed.problem, fork.address))
    for pattern, why, remedy in _PROBLEMS:
        if re.search(pattern, failed.stderr):
            return StackError(f"{fork} {why}", remedy)
    return StackError(f"{fork} cannot be reached: {said}", "check the address and the network, and run the command again")


_PROBLEMS = (
    (
        r"error: 403|HTTP 403|denied to|access denied",
        "does not let you push",
        "is it your own fork, and may your token or key write to it?",
    ),
    (
        r"Authentication failed|error: 401|could not read (?:Username|Password)|terminal prompts disabled|Permission denied \(",
        "wants to know who you are, and git has no credentials that it takes",
        "set up a credential helper (`git help credentials`) or an ssh key; some forges ask where no fork is, too",
    ),
    (
        r"[Rr]epository .*not found|error: 404|does not appear to be a git repository|does not exist",
        "is not there, or you may not see it",
        "fork the upstream on its forge first, or correct the address",
    ),
    (
        r"hung up|early EOF|RPC failed|unexpected disconnect|transfer closed|Connection reset|Operation too slow|bad line length",
        "broke off",
        "run the command again: it goes on where this one was",
    ),
)
"""What git says about a remote, what that means, and what to do."""


def _without_secrets(text: str, address: str) -> str:
    """The text without the address's name and password: a token may stand for either."""
    text = text.replace(address, redacted(address))
    parts = urlsplit(address)
    secrets = (parts.username, parts.password) if "://" in address else ()
    for secret in sorted({form for one in secrets if one for form in (one, unquote(one))}, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
