# SPDX-License-Identifier: Apache-2.0
"""Sign and verify with a short certificate for an OIDC identity, by the `sigstore` package (the extra `keyless`)."""

from dataclasses import dataclass, field
from typing import Any

from stack.images.bundle import Bundle


@dataclass(frozen=True, slots=True)
class Identity:
    """An identity that an issuer vouches for, and the verifier with the roots of trust."""

    identity: str
    issuer: str
    verifier: Any = field(repr=False)

    @property
    def name(self) -> str:
        """The identity with its issuer, for messages."""
        return f"{self.identity} ({self.issuer})"

    def payload(self, given: Bundle) -> bytes | None:
        """Return the content of a bundle that this identity has signed, else None."""
        raise NotImplementedError
