# SPDX-License-Identifier: Apache-2.0
"""Stand-ins on loopback for an OIDC issuer, Fulcio and Rekor (version 1), with a root of trust of their own.

No registry has servers of them that run alone: Debian's package rekor has the client, and Fulcio is a library there. What they
make is verified by sigstore's own verifier and by cosign.
"""

import base64
import hashlib
import json
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import rfc8785
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from tests.loopback import Patient, listening

_SCT = ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_ISSUER = ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
_ISSUER_DER = ObjectIdentifier("1.3.6.1.4.1.57264.1.8")
_SHA256 = ec.ECDSA(hashes.SHA256())
WORKFLOW = "example/fork/.github/workflows/release.yml@refs/heads/main"


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def spki(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def log_id(key: ec.EllipticCurvePrivateKey) -> bytes:
    return hashlib.sha256(spki(key)).digest()


@dataclass
class Log:
    """A Merkle tree (RFC 6962) of log entries, whose head and entries a key signs."""

    key: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    leaves: list[bytes] = field(default_factory=lambda: [bytes(32)])
    """Hashes of the entries. cosign 2.5 takes the number 0 for no number, so the first is not given out."""
    clock: Any = time.time

    def add(self, body: bytes) -> dict[str, Any]:
        """Add an entry; what Rekor answers."""
        self.leaves.append(hashlib.sha256(b"\0" + body).digest())
        index, size = len(self.leaves) - 1, len(self.leaves)
        entry = {
            "body": encoded(body),
            "integratedTime": int(self.clock()),
            "logID": log_id(self.key).hex(),
            "logIndex": index,
        }
        promise = self.key.sign(rfc8785.dumps(entry), _SHA256)
        proof = {
            "checkpoint": self._checkpoint(size),
            "hashes": [one.hex() for one in path(index, self.leaves)],
            "logIndex": index,
            "rootHash": root(self.leaves).hex(),
            "treeSize": size,
        }
        verification = {"inclusionProof": proof, "signedEntryTimestamp": encoded(promise)}
        return {hashlib.sha256(body).hexdigest(): {**entry, "verification": verification}}

    def _checkpoint(self, size: int) -> str:
        note = f"rekor.local - 1\n{size}\n{encoded(root(self.leaves))}\n"
        signature = self.key.sign(note.encode(), _SHA256)
        return f"{note}\n\u2014 rekor.local {encoded(log_id(self.key)[:4] + signature)}\n"


def root(leaves: list[bytes]) -> bytes:
    if len(leaves) == 1:
        return leaves[0]
    half = _half(len(leaves))
    return hashlib.sha256(b"\1" + root(leaves[:half]) + root(leaves[half:])).digest()


def path(index: int, leaves: list[bytes]) -> list[bytes]:
    if len(leaves) == 1:
        return []
    half = _half(len(leaves))
    if index < half:
        return [*path(index, leaves[:half]), root(leaves[half:])]
    return [*path(index - half, leaves[half:]), root(leaves[:half])]


def _half(size: int) -> int:
    return int(1 << ((size - 1).bit_length() - 1))


@dataclass
class Services:
    """An issuer, a certificate authority and a log; `address` is where they listen."""

    address: str = ""
    issuer_key: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    authority_key: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    certificates_key: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    log: Log = field(default_factory=Log)
    issued: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    """Addresses of all requests."""
    claims: dict[str, Any] = field(default_factory=lambda: {"job_workflow_ref": WORKFLOW, "sub": "repo:example/fork"})
    request_token: str = "request-secret"
    refuse: bool = False
    valid: timedelta = timedelta(minutes=10)

    def __post_init__(self) -> None:
        name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "test"), x509.NameAttribute(NameOID.COMMON_NAME, "ca")])
        now = datetime.now(UTC)
        self.authority = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self.authority_key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(True, 0), True)
            .add_extension(_usage(certificates=True), True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.authority_key.public_key()), False)
            .sign(self.authority_key, hashes.SHA256())
        )

    def token(self, audience: str = "sigstore", **more: Any) -> str:
        now = int(time.time())
        claims = {"iss": self.address, "aud": audience, "iat": now, "nbf": now, "exp": now + 300, **self.claims, **more}
        return jwt.encode(claims, self.issuer_key, algorithm="ES256")

    @property
    def identity(self) -> str:
        return f"https://github.com/{WORKFLOW}"

    def certificate(self, token: str, request: bytes) -> list[str]:
        """Fulcio: verify the token and the request, and issue a certificate for the identity."""
        claims = jwt.decode(token, self.issuer_key.public_key(), algorithms=["ES256"], audience="sigstore", issuer=self.address)
        asked = x509.load_pem_x509_csr(request)
        assert asked.is_signature_valid
        workflow, pipeline = claims.get("job_workflow_ref"), claims.get("ci_config_ref_uri")
        name = f"https://github.com/{workflow}" if workflow else f"https://{pipeline}" if pipeline else None
        names = x509.UniformResourceIdentifier(name) if name else x509.RFC822Name(claims["email"])
        now = datetime.now(UTC)
        start = now - max(timedelta(0), timedelta(minutes=10) - self.valid)
        base = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self.authority.subject)
            .public_key(asked.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + self.valid)
            .add_extension(_usage(certificates=False), True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.authority_key.public_key()), False)
            .add_extension(x509.SubjectAlternativeName([names]), True)
            .add_extension(x509.UnrecognizedExtension(_ISSUER, self.address.encode()), False)
            .add_extension(x509.UnrecognizedExtension(_ISSUER_DER, _der(0x0C, self.address.encode())), False)
        )
        draft = self._with(base, b"\0" * 70)
        stamp = int(now.timestamp() * 1000)
        signed = draft.tbs_precertificate_bytes
        entry = log_id(self.authority_key) + len(signed).to_bytes(3, "big") + signed
        signature = self.certificates_key.sign(struct.pack("!BBQH", 0, 0, stamp, 1) + entry + b"\0\0", _SHA256)
        made = self._with(base, signature, stamp)
        assert made.tbs_precertificate_bytes == signed
        self.issued.append(name or str(claims["email"]))
        return [one.public_bytes(Encoding.PEM).decode() for one in (made, self.authority)]

    def _with(self, base: x509.CertificateBuilder, signature: bytes, stamp: int = 0) -> x509.Certificate:
        """The certificate with the timestamp of the log of certificates."""
        one = struct.pack("!B32sQHBBH", 0, log_id(self.certificates_key), stamp, 0, 4, 3, len(signature)) + signature
        listed = struct.pack("!HH", len(one) + 2, len(one)) + one
        return base.add_extension(x509.UnrecognizedExtension(_SCT, _der(0x04, listed)), False).sign(
            self.authority_key, hashes.SHA256()
        )

    def entry(self, proposed: Mapping[str, Any]) -> dict[str, Any]:
        """Rekor: log an envelope."""
        content = proposed["spec"]["proposedContent"]
        envelope = json.loads(content["envelope"])
        (verifier,) = content["verifiers"]
        signatures = [{"signature": one["sig"], "verifier": verifier} for one in envelope["signatures"]]
        spec = {
            "envelopeHash": _hashed(content["envelope"].encode()),
            "payloadHash": _hashed(base64.b64decode(envelope["payload"])),
            "signatures": signatures,
        }
        return self.log.add(rfc8785.dumps({"apiVersion": "0.0.1", "kind": "dsse", "spec": spec}))

    @property
    def trusted_root(self) -> dict[str, Any]:
        valid = {"start": "2020-01-01T00:00:00Z"}

        def log(key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
            public = {"rawBytes": encoded(spki(key)), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": valid}
            return {
                "baseUrl": self.address,
                "hashAlgorithm": "SHA2_256",
                "publicKey": public,
                "logId": {"keyId": encoded(log_id(key))},
            }

        chain = {"certificates": [{"rawBytes": encoded(self.authority.public_bytes(Encoding.DER))}]}
        subject = {"organization": "test", "commonName": "ca"}
        return {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log(self.log.key)],
            "certificateAuthorities": [{"subject": subject, "uri": self.address, "certChain": chain, "validFor": valid}],
            "ctlogs": [log(self.certificates_key)],
        }

    @property
    def trust_config(self) -> dict[str, Any]:
        service = {
            "url": self.address,
            "majorApiVersion": 1,
            "validFor": {"start": "2020-01-01T00:00:00Z"},
            "operator": "test",
        }
        signing = {
            "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
            "caUrls": [service],
            "oidcUrls": [service],
            "rekorTlogUrls": [service],
            "rekorTlogConfig": {"selector": "ANY"},
            "tsaUrls": [],
            "tsaConfig": {"selector": "ANY"},
        }
        return {
            "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
            "trustedRoot": self.trusted_root,
            "signingConfig": signing,
        }

    @property
    def github(self) -> dict[str, str]:
        """The variables of a job on GitHub that may ask for a token."""
        return {
            "GITHUB_ACTIONS": "true",
            "ACTIONS_ID_TOKEN_REQUEST_URL": f"{self.address}/token?api-version=2.0",
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": self.request_token,
        }


def _usage(*, certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(not certificates, False, False, False, False, certificates, certificates, False, False)


def _der(tag: int, content: bytes) -> bytes:
    size = bytes([len(content)]) if len(content) < 128 else b"\x82" + len(content).to_bytes(2, "big")
    return bytes([tag]) + size + content


def _hashed(data: bytes) -> dict[str, str]:
    return {"algorithm": "sha256", "value": hashlib.sha256(data).hexdigest()}


@contextmanager
def serving(services: Services) -> Iterator[Services]:
    """Answer as issuer, Fulcio and Rekor as long as the block runs."""

    class Handler(Patient):
        def do_GET(self) -> None:
            services.seen.append(self.path)
            if self.path.startswith("/token"):
                assert self.headers["Authorization"].lower() == f"bearer {services.request_token}"
                self.reply(200, {"value": services.token()})
            else:
                self.reply(404, {})

        def do_POST(self) -> None:
            services.seen.append(self.path)
            content = json.loads(self.sent())
            if services.refuse:  # a server that repeats what it was sent
                self.reply(403, {"message": f"refused: {self.headers['Authorization']}"})
            elif self.path == "/api/v2/signingCert":
                token = self.headers["Authorization"].removeprefix("Bearer ")
                chain = services.certificate(token, base64.b64decode(content["certificateSigningRequest"]))
                self.reply(200, {"signedCertificateEmbeddedSct": {"chain": {"certificates": chain}}})
            elif self.path == "/api/v1/log/entries":
                self.reply(201, services.entry(content))
            else:
                self.reply(404, {})

        def reply(self, status: int, content: object) -> None:
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with listening(Handler) as port:
        services.address = f"http://127.0.0.1:{port}"
        yield services
