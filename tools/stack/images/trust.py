# SPDX-License-Identifier: Apache-2.0
"""Whose attestations count: those of a key, or those of an identity that an issuer vouches for."""

from collections.abc import Iterator

from securesystemslib.signer import SSlibKey

from stack.images import attestations, bundle, envelope
from stack.images.attestations import Attestation
from stack.images.image import Image
from stack.images.keyless import Identity
from stack.images.statement import Statement

Trusted = SSlibKey | Identity


def payload(item: Attestation, trusted: Trusted | None) -> bytes | None:
    """Return an attestation's content if the trusted key or identity has signed it; without either, unchecked.

    Raises:
        StackError: Nobody is trusted, and it is not an envelope.

    """
    if trusted is None:
        return attestations.payload_of(item)
    if isinstance(trusted, Identity):
        return trusted.payload(item.bundle) if item.bundle is not None and item.bundle.certificate is not None else None
    return attestations.payload_of(item) if envelope.signed_by(item.envelope, trusted) else None


def contradictions(item: Attestation, said: Statement, image: Image, trusted: Trusted | None) -> Iterator[str]:
    """Yield what a bundle, or the artifact that attaches it, says otherwise than the signed statement inside."""
    if item.bundle is None or trusted is None:
        return
    if isinstance(trusted, SSlibKey) and item.bundle.certificate is not None:
        yield "one signed with this key has a certificate"
    if isinstance(trusted, SSlibKey) and item.bundle.hint not in (None, bundle.hint(trusted)):
        yield f"one signed with this key names another ({item.bundle.hint!r:.80})"
    if item.referrer is None:
        return
    if item.referrer.subject != image.digest:
        yield f"one is attached to {item.referrer.subject}"
    if item.referrer.predicate not in (None, said.kind):
        yield f"one is listed as {item.referrer.predicate!r:.80} and says {said.kind!r:.80}"


def name(trusted: Trusted) -> str:
    """Return what a message calls a key or identity."""
    return f"by {trusted.name}" if isinstance(trusted, Identity) else "with this key"
