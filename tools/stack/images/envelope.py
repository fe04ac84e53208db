# SPDX-License-Identifier: Apache-2.0
"""DSSE envelopes: statements signed with a key file, verifiable by cosign (ECDSA P-256 or Ed25519)."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import Error
from securesystemslib.signer import CryptoSigner, Signature, SSlibKey

from stack.base.errors import StackError
from stack.images import layout

PAYLOAD = "application/vnd.in-toto+json"
SIGNATURES = 8
"""Maximal number of signatures of an envelope that are tried."""
_DAMAGED = (Error, ValueError, LookupError, TypeError, AttributeError, RecursionError)
_KINDS = "openssl genpkey -algorithm ed25519 makes one; ECDSA P-256 is the other kind"


@dataclass(frozen=True, slots=True)
class Signer:
    """A private key to sign with."""

    _signer: CryptoSigner

    @property
    def public(self) -> SSlibKey:
        """Its public key."""
        return self._signer.public_key

    def sign(self, payload: bytes) -> bytes:
        """Sign a statement, and return the envelope."""
        made = Envelope(payload, PAYLOAD, {})
        made.sign(self._signer)
        return layout.encode(made.to_dict())


def signer(file: Path) -> Signer:
    """Load the private key from a PEM file.

    Raises:
        StackError: the file has no private key, or one of an unsupported kind.

    """
    try:
        key = load_pem_private_key(_read(file), None)
    except TypeError as closed:
        raise StackError(f"{file} is encrypted", "name a key that can be read without a password") from closed
    except (ValueError, UnsupportedAlgorithm) as bad:
        raise StackError(f"{file} contains no private key in PEM", _KINDS) from bad
    if isinstance(key, Ed25519PrivateKey) or (isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP256R1)):
        return Signer(CryptoSigner(key))
    raise StackError(f"{file} contains a key of an unsupported kind", _KINDS)


def public(file: Path) -> SSlibKey:
    """Load the public key from a PEM file; from a private key, derive it.

    Raises:
        StackError: the file has no key, or one of an unsupported kind.

    """
    data = _read(file)
    if b"PRIVATE KEY" in data:
        return signer(file).public
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as bad:
        raise StackError(f"{file} contains no public key in PEM", "openssl pkey -in KEY -pubout writes it") from bad
    if isinstance(key, Ed25519PublicKey) or (isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1)):
        return SSlibKey.from_crypto(key)
    raise StackError(f"{file} contains a key of an unsupported kind", _KINDS)


def signed_by(envelope: bytes, key: SSlibKey) -> bool:
    """Return whether an envelope contains a statement with a valid signature by this key, whatever name it has for the key."""
    try:
        fields = json.loads(envelope)
        made = Envelope.from_dict({**fields, "signatures": []})
        signatures = [base64.b64decode(item["sig"], validate=True).hex() for item in fields["signatures"][:SIGNATURES]]
        return made.payload_type == PAYLOAD and any(_verified(made.pae(), signature, key) for signature in signatures)
    except _DAMAGED:
        return False


def _verified(signed: bytes, signature: str, key: SSlibKey) -> bool:
    try:
        key.verify_signature(Signature(key.keyid, signature), signed)
    except Error:
        return False
    return True


def renamed(envelope: bytes, name: str) -> bytes:
    """Return an envelope whose signatures name their key so; the name is a hint that no signature covers.

    Raises:
        StackError: it is not an envelope.

    """
    try:
        fields = json.loads(envelope)
        signatures = [{"keyid": name, "sig": str(item["sig"])} for item in fields["signatures"]]
        return layout.encode({"payload": fields["payload"], "payloadType": fields["payloadType"], "signatures": signatures})
    except _DAMAGED as bad:
        raise StackError("an attestation is not a DSSE envelope", "publish the image again") from bad


def payload(envelope: bytes) -> bytes:
    """Return an envelope's content without checking its signatures.

    Raises:
        StackError: it is not an envelope.

    """
    try:
        made = Envelope.from_dict({**json.loads(envelope), "signatures": []})
    except _DAMAGED as bad:
        raise StackError("an attestation is not a DSSE envelope", "publish the image again") from bad
    return bytes(made.payload)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as failed:
        raise StackError(f"{file} cannot be read ({failed.strerror})", "name a key in PEM") from failed
