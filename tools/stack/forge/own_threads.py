# SPDX-License-Identifier: Apache-2.0
"""What the clients of all forges do alike for the issues and pull requests of the user's own repository."""

from abc import ABC, abstractmethod
from functools import cached_property

from stack.forge.asking import Asker
from stack.forge.repositories import Repository
from stack.forge.values import word


class OwnThreads(ABC):
    """A repository at a forge, reached by its API; `path` is the repository's path there."""

    def __init__(self, asker: Asker, repository: Repository, path: str) -> None:
        self._asker = asker
        self._repository = repository
        self._path = path
        self._trusted: dict[str, bool] = {}

    @property
    def shown(self) -> str:
        """The repository's name."""
        return self._repository.shown

    @cached_property
    def account(self) -> str:
        """The account that the token belongs to; empty without a token."""
        return self._login() if self._asker.has_token else ""

    def close(self) -> None:
        """Close the connection."""
        self._asker.close()

    def require_token(self) -> None:
        """Refuse to go on without a token."""
        self._asker.require_token()

    def default_branch(self) -> str:
        """Return the branch that pull requests go to."""
        return self._asker.ask(self.shown, lambda: word(self._asker.api.get(self._path)["default_branch"]))

    def trusts(self, author: str) -> bool:
        """Return whether the token belongs to an account, or the account may write to the repository; asked once for each."""
        if not author:
            return False
        if author not in self._trusted:
            self._trusted[author] = author == self.account or self._may_write(author)
        return self._trusted[author]

    @abstractmethod
    def _login(self) -> str:
        """Ask for the account that the token belongs to."""

    @abstractmethod
    def _may_write(self, author: str) -> bool:
        """Ask whether an account may write to the repository."""
