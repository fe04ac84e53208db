# SPDX-License-Identifier: Apache-2.0
"""Find the user's fork of an upstream, read its branches, and push to it.

All access goes through git, with git's credentials: a helper, an agent, or what the user types at git's prompt.
"""

import ipaddress
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from stack.base.addresses import redacted
from stack.base.errors import StackError
from stack.base.text import printable
from stack.model.ids import CommitId
from stack.model.pins import Pin, Pins
from stack.store import git, repository

_PATIENCE = ("-c", "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=120")
"""A server that sends nothing for two minutes is taken as gone; a server with slow hooks sends a byte now and then."""
_SCP = re.compile(r"(?:[^/@:]+@)?(?P<host>[^/@:]+|\[[0-9a-fA-F:]+\]):(?!//)(?P<path>.+)")
"""`git@host:path`, git's short form of an ssh address."""
_HELPER = re.compile(r"[\w+.-]+::")
"""Matches an address that starts a program of git: `ext::` runs a command, `fd::` reads an open file."""
_ADVERTISED = re.compile(r"([0-9a-f]{40})\t(refs/[^\t]+)")
_ANSWER = re.compile(r"(?P<flag>[ +*!=-])\t(?P<source>[^\t:]*):(?P<ref>[^\t]+)\t(?P<said>.*)")
_REASON = re.compile(r"\[[^\]]*\] \((?P<reason>.*)\)|\[[^\]]*\](?P<bare>.*)")
_VARIABLE = "STACK_GIT_PASSWORD"
"""The variable that gives git's credential helper the password of an address."""
_PASSES = f'!f() {{ test "$1" = get && printf "password=%s\\n" "${_VARIABLE}"; }}; f'
_MEANWHILE = "somebody changed it meanwhile: run it again"
_ALL_OR_NONE = "not pushed: the fork takes all or none"


@dataclass(frozen=True, slots=True)
class Fork:
    """A fork by its address for git; `str` returns the address without secrets."""

    upstream: str
    address: str

    def __str__(self) -> str:
        return redacted(self.address)

    @property
    def bare(self) -> str:
        """Return the address for git's command line, which every user of the machine can read: without name and password."""
        return _parts(self.address)[0]

    @property
    def secrets(self) -> Mapping[str, str]:
        """Return the variables by which git gets the name and the password in the address."""
        bare, name, password = _parts(self.address)
        if not name:
            return {}
        parts = urlsplit(bare)
        place = f"credential.{parts.scheme}://{parts.netloc}"
        settings = [(f"{place}.username", name)]
        # The empty one takes the user's own helpers out: they might know another password, or store this one.
        settings += [(f"{place}.helper", ""), (f"{place}.helper", _PASSES)] if password else []
        return git.with_settings(settings) | {_VARIABLE: password}

    @property
    def local(self) -> bool:
        """Return whether the fork is on this machine, so that nobody else sees what is pushed."""
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
    """A ref update: point `ref` at `commit` if it is at `expected` now; None means that it must not exist yet."""

    ref: str
    commit: CommitId
    expected: CommitId | None = None


def named(given: Sequence[str], pins: Pins, wanted: Sequence[str], root: Path, store: Path) -> dict[str, Fork]:
    """Return the fork to push to for each upstream.

    Args:
        given: `[UPSTREAM=]REMOTE` each: an address, an account's address with a trailing slash, or a remote of the stack's own git.
        pins: the stack's pins.
        wanted: the upstreams with something to push.
        root: the stack's folder.
        store: a repository in which git reads the user's configuration.

    Raises:
        StackError: a name is unknown, or the fork of an upstream is ambiguous.

    """
    forks_by_name: dict[str, Fork] = {}
    for argument in given:
        names, remote = _split(argument, pins, wanted)
        if len(names) > 1 and not remote.endswith("/"):
            raise StackError(
                f"--push {redacted(remote)} is a single repository, but there are branches for {', '.join(names)}",
                "write --push UPSTREAM=REMOTE for each, or the address of your account with a slash at its end",
            )
        for name in names:
            if name in forks_by_name:
                raise StackError(f"two forks of {name} are named", "name one")
            forks_by_name[name] = at(pins.get(name), remote, root, store)
    return forks_by_name


def at(pin: Pin, remote: str, root: Path, store: Path) -> Fork:
    """Return the fork of an upstream at an address, or at a remote of the stack's own git.

    Args:
        pin: the upstream's pin.
        remote: an address, an account's address with a trailing slash, or the name of a remote.
        root: the stack's folder.
        store: a repository in which git reads the user's configuration.

    Raises:
        StackError: it is no address, there is no such remote, or it is the upstream itself.

    """
    address = remote
    if remote.endswith("/"):
        address = remote + pin.git.rstrip("/").rpartition("/")[2]
    elif not _is_address(remote):
        address = _of_the_stack(root, remote)
    fork = Fork(pin.upstream, _rewritten(store, readable(address)))
    if _plain(fork.address) == _plain(pin.git):
        raise StackError(f"{fork} is the upstream itself", "push to your own fork of it")
    return fork


def _split(given: str, pins: Pins, wanted: Sequence[str]) -> tuple[Sequence[str], str]:
    name, equals, remote = given.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        return wanted, given
    pins.get(name)  # raises if there is no such upstream
    if name not in wanted:
        raise StackError(f"there is no pull request of {name} to push", "see the plan: stack export-pr")
    return (name,), remote


def readable(address: str) -> str:
    """Return an address that git may be given.

    Raises:
        StackError: it is empty, starts a program, or git would take it for an option.

    """
    try:
        host = urlsplit(address).hostname
    except ValueError:
        host = None
        address = ""
    if not address or _HELPER.match(address) or any((text or "").startswith("-") for text in (address, host)):
        raise StackError("the remote has no valid address", "write it as git takes it: https://…, ssh://… or git@host:path")
    return address


def _is_address(remote: str) -> bool:
    return "://" in remote or remote.startswith((".", "/", "~")) or _SCP.fullmatch(remote) is not None


def _of_the_stack(root: Path, name: str) -> str:
    done = git.run(["remote", "get-url", "--push", "--", name], cwd=root, user_config=True, accept=(0, 2, 128, 129))
    if done.returncode:
        raise StackError(
            f"the stack's git has no remote {name!r}", "name one (`git remote -v`), or the address of your fork of the upstream"
        )
    return done.stdout.decode("utf-8", "surrogateescape").removesuffix("\n").partition("\n")[0]


def _rewritten(store: Path, address: str) -> str:
    """Apply the user's `url.<base>.pushInsteadOf` and similar settings to an address.

    An address with a secret is returned unchanged, because git reads the address from a file here.
    """
    if urlsplit(address).scheme in ("http", "https") and urlsplit(address).username is not None:
        return address
    with repository.incoming(store) as place:
        git.run(["config", "--file", str(place / "config"), "remote.fork.url", address])
        return git.text(["remote", "get-url", "--push", "fork"], env={"GIT_DIR": str(place)})


def _parts(address: str) -> tuple[str, str, str]:
    """Split an http address into the address without name and password, the name, and the password; others stay whole.

    Raises:
        StackError: the name or the password has a line break or another special character.

    """
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or parts.username is None:
        return address, "", ""
    name, password = unquote(parts.username), unquote(parts.password or "")
    if not (name + password).isprintable():
        raise StackError(
            "the remote has no valid address", "write it without a name and a password, and use a credential helper"
        )
    bare = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, parts.query, parts.fragment))
    return bare, name, password


def _host(address: str) -> str:
    short = None if "://" in address else _SCP.fullmatch(address)
    try:
        return (short["host"].strip("[]") if short else urlsplit(address).hostname or "").lower()
    except ValueError:
        return ""


def _plain(address: str) -> tuple[str, str]:
    """Return host and path in a form that compares equal for all spellings of an address."""
    short = None if "://" in address else _SCP.fullmatch(address)
    path = short["path"] if short else urlsplit(address).path
    return _host(address), path.strip("/").removesuffix(".git").lower()


def look(store: Path, fork: Fork, branches: Sequence[str]) -> Mapping[str, CommitId]:
    """Return the commits of some branches in the fork, and of the tags below the branches' names.

    Raises:
        StackError: the fork cannot be read.

    """
    patterns = [pattern for name in branches for pattern in (f"refs/heads/{name}", f"refs/tags/{name}/*")]
    output = _ask(store, fork, ["ls-remote", "--quiet", "--refs", fork.bare, *patterns])
    matches = (_ADVERTISED.fullmatch(line) for line in output.splitlines())
    return {match[2]: CommitId(match[1]) for match in matches if match}


def bring(place: Path, fork: Fork, commit: CommitId, *, contents: bool = False) -> None:
    """Fetch a commit of the fork, with its history, into a temporary repository.

    Raises:
        StackError: the fork cannot be read, or refuses the commit.

    """
    command = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"]
    _ask(place, fork, [*command, *([] if contents else ["--filter=blob:none"]), fork.bare, f"{commit}:refs/heads/theirs"])


def fetch(store: Path, fork: Fork, specs: Sequence[str]) -> None:
    """Fetch refs of the fork, with their history, into a repository.

    Raises:
        StackError: the fork cannot be read, or refuses a commit.

    """
    command = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"]
    _ask(store, fork, [*command, fork.bare, *specs])


def has(store: Path, fork: Fork, commit: CommitId) -> bool:
    """Return whether the fork has a commit, even without a branch: then nothing below it has to be sent.

    Raises:
        StackError: the fork cannot be read.

    """
    command = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--negotiate-only", f"--negotiation-tip={commit}"]
    try:
        return commit in _git(store, fork, [*command, fork.bare]).splitlines()
    except git.GitError as failed:
        if "protocol v2" in failed.stderr:
            # An old server cannot be asked; assume that it has the commit, and git sends what is missing.
            return True
        if "expected 'acknowledgments'" in failed.stderr:
            # A repository without any commit answers with nothing.
            return False
        raise problem(fork, failed) from failed


def push(store: Path, fork: Fork, moves: Sequence[Move], held: Sequence[int] = ()) -> Mapping[str, str]:
    """Update refs of the fork, atomically if it supports that, each only if it is where it is expected.

    Args:
        store: the repository that has the commits.
        fork: the fork.
        moves: the updates.
        held: file descriptors of locks that git inherits: if git outlives this process, the store stays locked until it ends.

    Returns:
        The reason for each ref that was not updated, by the ref's name.

    Raises:
        StackError: the connection or git failed, and the result is unknown.
    """
    order = ["push", "--porcelain", "--no-verify", "--no-follow-tags", "--recurse-submodules=no"]
    leases = [f"--force-with-lease={move.ref}:{move.expected or ''}" for move in moves]
    specs = [f"{move.commit}:{move.ref}" for move in moves]
    try:
        return _push(store, fork, [*order, "--atomic", *leases, fork.bare, *specs], held)
    except git.GitError as failed:
        if "does not support --atomic" not in failed.stderr:
            raise problem(fork, failed) from failed
    try:
        return _push(store, fork, [*order, *leases, fork.bare, *specs], held)
    except git.GitError as failed:
        raise problem(fork, failed) from failed


def _push(store: Path, fork: Fork, args: Sequence[str], held: Sequence[int]) -> Mapping[str, str]:
    # Forges share objects between the forks of a project, so the fork may have commits that none of its branches reach. With
    # negotiation git asks first and sends little; a store without file contents would have to fetch all that it sends.
    done = _run(store, fork, ["-c", "push.negotiate=true", *args], accept=(0, 1), held=held)
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    answers = [answer for answer in map(_ANSWER.fullmatch, lines) if answer]
    if done.returncode and not answers:
        raise git.GitError(args, done.returncode, done.stderr.decode("utf-8", "replace"))
    refused = {answer["ref"]: _reason(answer["said"]) for answer in answers if answer["flag"] == "!"}
    if {*refused.values()} == {_ALL_OR_NONE}:
        # No reference has a reason of its own: the fork's transaction failed, since another push was faster.
        return dict.fromkeys(refused, _MEANWHILE)
    return refused


def _reason(answer: str) -> str:
    match = _REASON.fullmatch(answer)
    reason = printable((match["reason"] or match["bare"] or "").strip() if match else answer)
    known = {
        "stale info": _MEANWHILE,
        "fetch first": _MEANWHILE,
        "failed to update ref": _MEANWHILE,
        "atomic push failed": _ALL_OR_NONE,
        "atomic transaction failed": _ALL_OR_NONE,
        "atomic push failure": _ALL_OR_NONE,
    }
    return known.get(reason, reason or "the fork refused it")


def _ask(store: Path, fork: Fork, args: Sequence[str]) -> str:
    try:
        return _git(store, fork, args)
    except git.GitError as failed:
        raise problem(fork, failed) from failed


def _git(store: Path, fork: Fork, args: Sequence[str]) -> str:
    return _run(store, fork, args).stdout.decode("utf-8", "surrogateescape")


def _run(
    store: Path, fork: Fork, args: Sequence[str], accept: Sequence[int] = (0,), held: Sequence[int] = ()
) -> subprocess.CompletedProcess[bytes]:
    place = {"GIT_DIR": str(store), **_prompting(), **fork.secrets}
    return git.run([*_PATIENCE, *args], env=place, accept=accept, held=held)


def _prompting() -> Mapping[str, str]:
    """Allow git to ask for a password on a terminal, as the user has configured it, and never without a terminal."""
    if not sys.stdin.isatty():
        return {}
    return {"GIT_TERMINAL_PROMPT": os.environ.get("GIT_TERMINAL_PROMPT", "1")}


def problem(fork: Fork, failed: git.GitError) -> StackError:
    """Turn a failure of git into an error for the user, without the password in the address."""
    cause = printable(_without_secrets(failed.problem, fork.address))
    for pattern, why, remedy in _PROBLEMS:
        if re.search(pattern, failed.stderr):
            return StackError(f"{fork} {why}", remedy)
    return StackError(f"{fork} cannot be reached: {cause}", "check the address and the network, and run the command again")


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
"""Patterns in git's messages about a remote, each with its meaning and a remedy."""


def _without_secrets(text: str, address: str) -> str:
    """Remove the address's user name and password from a text; a token may be either."""
    text = text.replace(address, redacted(address))
    parts = urlsplit(address)
    secrets = (parts.username, parts.password) if "://" in address else ()
    for secret in sorted({form for part in secrets if part for form in (part, unquote(part))}, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
