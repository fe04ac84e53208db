# SPDX-License-Identifier: Apache-2.0
"""The kinds of forges: the addresses, variables and words of each one."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit

from stack.base.addresses import redacted
from stack.base.errors import StackError

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Kind(StrEnum):
    """The kinds of forges."""

    GITHUB = "github"
    GITLAB = "gitlab"
    FORGEJO = "forgejo"


@dataclass(frozen=True, slots=True)
class Service:
    """How a kind of forge is asked.

    Args:
        kind: The kind.
        title: Its name for people.
        home: The host that the token's variables are for.
        api_variable: The environment variable that names another address of the API.
        api_path: The path of the API on a host.
        token_variables: The environment variables with the token.
        host_variable: The environment variable with another host that they are for.
        pulls: What it calls pull requests.
        media: The media type of its answers.
        headers: Headers of each request.
        page_key: The name of the query with the size of a page.
        page: Entries of a page, as many as it allows.

    """

    kind: Kind
    title: str
    home: str
    api_variable: str
    api_path: str
    token_variables: tuple[str, ...]
    host_variable: str
    pulls: str
    media: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    page_key: str = "per_page"
    page: int = 100

    def api(self, host: str) -> str:
        """Return the address of a host's API: that of the environment variable, else the usual one.

        Raises:
            StackError: the variable's value is not an address that a token may be sent to.

        """
        named = os.environ.get(self.api_variable, "").rstrip("/")
        if not named:
            own = self.kind is Kind.GITHUB and host == self.home
            return f"https://api.{host}" if own else f"https://{host}{self.api_path}"
        self._check(named)
        return named

    def _check(self, address: str) -> None:
        try:
            parts = urlsplit(address)
        except ValueError:
            parts = urlsplit("")
        shown = f"{self.api_variable} is {redacted(address)}"
        if not parts.hostname or parts.username is not None or parts.query or parts.scheme not in ("https", "http"):
            example = f"https://api.{self.home}" if self.kind is Kind.GITHUB else f"https://{self.home}{self.api_path}"
            raise StackError(f"{shown}, which is not an API's address", f"it has to be like {example}")
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise StackError(f"{shown}, which is not secure", "use https: a token goes there")


GITHUB = Service(
    Kind.GITHUB,
    "GitHub",
    home="github.com",
    api_variable="GITHUB_API_URL",
    api_path="/api/v3",
    token_variables=("GH_TOKEN", "GITHUB_TOKEN"),
    host_variable="GH_HOST",
    pulls="pull requests",
    media="application/vnd.github+json",
    headers={"X-GitHub-Api-Version": "2022-11-28"},
)
GITLAB = Service(
    Kind.GITLAB,
    "GitLab",
    home="gitlab.com",
    api_variable="GITLAB_API_URL",
    api_path="/api/v4",
    token_variables=("GITLAB_TOKEN",),
    host_variable="GITLAB_HOST",
    pulls="merge requests",
)
FORGEJO = Service(
    Kind.FORGEJO,
    "Forgejo",
    home="codeberg.org",
    api_variable="FORGEJO_API_URL",
    api_path="/api/v1",
    token_variables=("FORGEJO_TOKEN",),
    host_variable="FORGEJO_HOST",
    pulls="pull requests",
    page_key="limit",
    page=50,
)
SERVICES = {service.kind: service for service in (GITHUB, GITLAB, FORGEJO)}


def of_host(host: str) -> Service | None:
    """Tell the kind of forge by a host's name, or by the variable that names it; None if neither tells."""
    for service in SERVICES.values():
        named = os.environ.get(service.host_variable, "").strip().lower()
        if (host and host in (service.home, named)) or host.startswith(f"{service.kind.value}."):
            return service
    return None
