# SPDX-License-Identifier: Apache-2.0
"""Sigstore bundles, version 0.3: a signed statement with all that its verification needs, in one JSON document.

The form is that of `sigstore_bundle.proto` of sigstore's protobuf-specs, in JSON.
"""

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
from securesystemslib.signer import SSlibKey

from stack.base.errors import StackError
from stack.images import layout
from stack.images.envelope import renamed

TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
LARGEST = 7_000_000
"""Maximal bytes of a statement that is attached as a bundle. Kyverno refuses every image that has a bundle above ten million bytes,
and base64 adds a third."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle: its envelope, which nothing has verified yet, and either the hint of a key or a certificate (DER)."""

    data: bytes
    envelope: bytes
    hint: str | None
    certificate: bytes | None


def hint(key: SSlibKey) -> str:
    """Return cosign's name of a public key: the base64 of the SHA-256 of its DER form."""
    public = str(key.keyval["public"])
    made = (
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        if key.keytype == "ed25519"
        else load_pem_public_key(public.encode())
    )
    der = made.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(der).digest()).decode()


def make(envelope: bytes, key: SSlibKey) -> bytes:
    """Put an envelope that was signed with a key into a bundle. The same envelope always gives the same bundle."""
    # cosign looks for a key of the name that a signature has, so it has none here: the hint names the key.
    signed = json.loads(renamed(envelope, ""))
    material = {"publicKey": {"hint": hint(key)}, "tlogEntries": []}
    return layout.encode({"mediaType": TYPE, "verificationMaterial": material, "dsseEnvelope": signed})


def read(data: bytes) -> Bundle:
    """Parse a bundle of version 0.3 that contains an envelope.

    Raises:
        StackError: It has another form.

    """
    try:
        top = json.loads(data)
        material = top["verificationMaterial"]
        found = _envelope(top["dsseEnvelope"])
        keyed, certified = material.get("publicKey"), material.get("certificate")
        if top["mediaType"] != TYPE or (keyed is None) == (certified is None):
            raise ValueError
        if certified is not None:
            return Bundle(data, found, None, base64.b64decode(certified["rawBytes"], validate=True))
        return Bundle(data, found, str(keyed.get("hint", "")), None)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, binascii.Error) as bad:
        raise StackError("an attestation is not a Sigstore bundle of version 0.3", "publish the image again") from bad


def _envelope(found: dict[str, Any]) -> bytes:
    """Return a bundle's envelope in the form that DSSE's own tools read; a bundle has exactly one signature.

    Raises:
        ValueError: It has another form.

    """
    (signature,) = found["signatures"]
    fields = {"payload": str(found["payload"]), "payloadType": str(found["payloadType"])}
    return layout.encode({**fields, "signatures": [{"keyid": "", "sig": str(signature["sig"])}]})
