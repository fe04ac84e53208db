# SPDX-License-Identifier: Apache-2.0
"""DSSE: statements signed with a key file, as cosign verifies them (ECDSA P-256 or Ed25519)."""

import json
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import Error
from securesystemslib.signer import CryptoSigner, SSlibKey

from stack.base.errors import StackError
from stack.images import layout

PAYLOAD = "application/vnd.in-toto+json"
_KINDS = "openssl genpkey -algorithm ed25519 makes one; ECDSA P-256 is the other kind"


@dataclass(frozen=True, slots=True)
class Signer:
    """Who signs: a private key."""

    _signer: CryptoSigner

    @property
    def public(self) -> SSlibKey:
        """Its public key."""
        return self._signer.public_key

    def sign(self, payload: bytes) -> bytes:
        """The envelope of a statement."""
        made = Envelope(payload, PAYLOAD, {})
        made.sign(self._signer)
        return layout.encode(made.to_dict())


def signer(file: Path) -> Signer:
    """The private key in a PEM file.

    Raises:
        StackError: there is none, or of a kind that is not used here.

    """
    try:
        key = load_pem_private_key(_read(file), None)
    except TypeError as closed:
        raise StackError(f"{file} is encrypted", "name a key that can be read without a password") from closed
    except (ValueError, UnsupportedAlgorithm) as bad:
        raise StackError(f"{file} holds no private key in PEM", _KINDS) from bad
    if isinstance(key, Ed25519PrivateKey) or (isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP256R1)):
        return Signer(CryptoSigner(key))
    raise StackError(f"{file} holds a key of another kind", _KINDS)


def public(file: Path) -> SSlibKey:
    """The public key in a PEM file; of a private one its public half.

    Raises:
        StackError: there is none, or of a kind that is not used here.

    """
    data = _read(file)
    if b"PRIVATE KEY" in data:
        return signer(file).public
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as bad:
        raise StackError(f"{file} holds no public key in PEM", "openssl pkey -in KEY -pubout writes it") from bad
    if isinstance(key, Ed25519PublicKey) or (isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1)):
        return SSlibKey.from_crypto(key)
    raise StackError(f"{file} holds a key of another kind", _KINDS)


def signed_by(envelope: bytes, key: SSlibKey) -> bool:
    """Whether an envelope holds a statement that this key has signed."""
    try:
        made = Envelope.from_dict(json.loads(envelope))
        made.verify([key], 1)
    except (Error, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False
    return made.payload_type == PAYLOAD


def payload(envelope: bytes) -> bytes:
    """What an envelope holds, whoever signed it.

    Raises:
        StackError: it is no envelope.

    """
    try:
        made = Envelope.from_dict(json.loads(envelope))
    except (Error, ValueError, LookupError, TypeError, AttributeError, RecursionError) as bad:
        raise StackError("an attestation is no DSSE envelope", "publish the image again") from bad
    return bytes(made.payload)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as failed:
        raise StackError(f"{file} cannot be read ({failed.strerror})", "name a key in PEM") from failed
