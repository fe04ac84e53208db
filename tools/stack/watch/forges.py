# SPDX-License-Identifier: Apache-2.0
"""Find out which kind of forge hosts the user's repository, and connect to it."""

from pathlib import Path

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.forge import services
from stack.forge.forgejo import ForgejoThreads
from stack.forge.github import GitHub
from stack.forge.github_threads import GitHubThreads
from stack.forge.gitlab import GitLabThreads
from stack.forge.repositories import Repository
from stack.forge.services import SERVICES, Kind, Service
from stack.forge.threads import Threads
from stack.store import git
from stack.watch import own_repository

SETTING = "stack.forge"
"""The setting of git with the kind of forge, for hosts whose name does not tell it."""


def service(host: str, root: Path, named: str | None = None) -> Service:
    """Find the kind of forge on a host: as the user names it, by the host's name, by the setting of git, else GitHub.

    Args:
        host: the host of the user's repository.
        root: a folder in its checkout.
        named: the kind that the user names.

    Raises:
        StackError: the setting names no kind of forge.

    """
    if named is not None:
        return SERVICES[Kind(named)]
    if (known := services.of_host(host)) is not None:
        return known
    name = _set(root) or Kind.GITHUB
    try:
        return SERVICES[Kind(name)]
    except ValueError:
        raise StackError(f"git's setting {SETTING} is {name!r}", f"set it to one of {', '.join(Kind)}") from None


def _set(root: Path) -> str:
    """Return the kind of forge that the setting of git names."""
    done = git.run(["config", "--get", SETTING], cwd=root, user_config=True, accept=(0, 1, 128))
    return done.stdout.decode("utf-8", "replace").strip()


def kind(root: Path, remote: str, named: str | None) -> tuple[Kind, str]:
    """Find the kind of forge for a workflow; also return why GitHub was assumed, and an empty text if nothing was.

    Raises:
        StackError: the setting names no kind of forge.

    """
    if named is not None:
        return Kind(named), ""
    try:
        host = own_repository.locate(root, remote).repository.host
    except StackError:
        host = ""
    found = service(host, root).kind
    if services.of_host(host) is not None or _set(root):
        return found, ""
    return found, f"the name {host} does not tell the forge" if host else f"git has no remote {remote!r} at a forge"


def connected(repository: Repository, service: Service, tell: Progress) -> Threads:
    """Connect to the forge of a repository.

    Raises:
        StackError: the repository's name is not one of this kind of forge, or the token or the API's address cannot be used.

    """
    match service.kind:
        case Kind.GITLAB:
            return GitLabThreads(repository, tell)
        case _ if "/" in repository.owner:
            name = f"{repository.host}/{repository.shown}"
            raise StackError(f"{name} is not a repository of {service.title}", "if it is one of GitLab, add --gitlab")
        case Kind.FORGEJO:
            return ForgejoThreads(repository, tell)
        case Kind.GITHUB:
            return GitHubThreads(GitHub(repository.host, tell), repository)
