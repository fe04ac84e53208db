# SPDX-License-Identifier: Apache-2.0
"""Attestations of an image in both forms: Sigstore bundles that refer to it, and cosign's earlier tag of envelopes."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.images import attached, bundle, envelope, layout, referrers, registry_client, skopeo
from stack.images.bundle import Bundle
from stack.images.envelope import Signer
from stack.images.image import Image
from stack.images.keyless import KeylessSigner
from stack.images.reference import Reference
from stack.images.referrers import Referrer
from stack.images.registry_client import RegistryClient


@dataclass(frozen=True, slots=True)
class Attestation:
    """An envelope that nothing has verified yet, and the bundle that contains it, if it is in that form.

    The envelope's signatures name no key, so it is the same in both forms.
    `referrer` is the artifact that attaches the bundle; a bundle that was just made has none.
    """

    envelope: bytes
    bundle: Bundle | None = None
    referrer: Referrer | None = None


def fetch(image: Image, *, tls: bool = True) -> tuple[Attestation, ...]:
    """Return all attestations of an image, those in bundles first. Bundles of another form are left out.

    Raises:
        StackError: They cannot be read, or do not match their digests.

    """
    found = _saved(image) if image.reference.layout else _referring(image, tls)
    read = []
    for item in found:
        try:
            parsed = bundle.read(item.data)
        except StackError:  # anybody may attach what is none
            continue
        read.append(Attestation(parsed.envelope, parsed, item))
    return (*read, *_earlier(image, tls))


def _earlier(image: Image, tls: bool) -> Iterator[Attestation]:
    for item in attached.fetch(image, tls=tls):
        try:
            yield Attestation(envelope.renamed(item, ""))
        except StackError:  # anybody may attach what is none
            continue


def _referring(image: Image, tls: bool) -> tuple[Referrer, ...]:
    with RegistryClient(Reference(image.reference.place), tls=tls) as client:
        entries = referrers.listed(client, image.digest)
        return referrers.bundles(entries, lambda name, _: client.manifest(name).data, client.blob)


def _saved(image: Image) -> tuple[Referrer, ...]:
    """Return the bundles that `stack image verify --save` has kept in a layout."""
    folder = Path(image.reference.place)
    try:
        index = layout.manifest(folder, referrers.tag(image.digest))
    except skopeo.Absent:
        return ()
    entries = registry_client.descriptors([index])

    def blob(name: str, most: int) -> bytes:
        return layout.blob(folder, name, most=most)

    return referrers.bundles(entries, blob, blob)


def sign(signer: Signer | KeylessSigner, statement: bytes) -> Attestation:
    """Sign a statement.

    Raises:
        StackError: There is no certificate or no log entry, or the statement is too large for a bundle, which a keyless signature
            needs.

    """
    if isinstance(signer, KeylessSigner) and len(statement) > bundle.LARGEST:
        raise StackError(
            f"an attestation has {len(statement)} bytes: the largest without a key has {bundle.LARGEST}",
            "name a smaller bill of materials with --sbom, or sign with --key",
        )
    made = signer.sign(statement)
    read = bundle.read(made if isinstance(signer, KeylessSigner) else bundle.make(made, signer.public))
    return Attestation(read.envelope, read)


def attach(
    image: Image, repository: Reference, items: Sequence[Attestation], signer: Signer | KeylessSigner, *, tls: bool = True
) -> None:
    """Attach attestations to an image, each in the forms in which it is not attached yet; a signature is never made twice.

    A keyless signature has one form, the bundle: the earlier form has no place for the log's proof. A statement that is too large
    for a bundle has the earlier form only.

    Args:
        image: The image.
        repository: Where it is.
        items: All attestations of this signer, those that are attached already among them.
        signer: The signer.
        tls: Whether the registry needs a trusted certificate.

    Raises:
        StackError: The registry refuses them.

    """
    bundled = {item.envelope for item in items if item.referrer is not None}
    new = {item.envelope: item for item in items if item.envelope not in bundled}
    with RegistryClient(repository, tls=tls, push=True) as client:
        if isinstance(signer, KeylessSigner):
            made = [item.bundle.data for item in new.values() if item.bundle is not None]
        else:
            fitting = [item for item in new if len(envelope.payload(item)) <= bundle.LARGEST]
            made = [bundle.make(item, signer.public) for item in fitting]
        if made:
            referrers.attach(client, image, made)
        if isinstance(signer, KeylessSigner):
            return
        earlier = {item.envelope for item in items if item.bundle is None}
        names = dict.fromkeys(item.envelope for item in items if item.envelope not in earlier)
        if names:
            attached.attach(client, image, [envelope.renamed(item, signer.public.keyid) for item in names])


def payload_of(item: Attestation) -> bytes:
    """Return an attestation's content without checking its signature.

    Raises:
        StackError: It is not an envelope.

    """
    return envelope.payload(item.envelope)


def same(first: bytes, second: bytes) -> bool:
    """Tell whether two statements say the same, whenever they were made."""
    return _timeless(first) == _timeless(second)


def _timeless(statement: bytes) -> object:
    top = json.loads(statement)
    if isinstance(top, dict) and isinstance(predicate := top.get("predicate"), dict):
        return {**top, "predicate": {key: value for key, value in predicate.items() if key != "timeVerified"}}
    return top
