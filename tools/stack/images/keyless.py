# SPDX-License-Identifier: Apache-2.0
"""Sign and verify with a short certificate for an OIDC identity, by the `sigstore` package (the extra `keyless`).

A CI gives its job a token. Fulcio issues a certificate for the identity in it, and Rekor logs each signature. No key is kept.
The token goes to Fulcio only: it is in no message, file or argument.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stack.base import bounded_http
from stack.base.errors import StackError
from stack.images.bundle import Bundle
from stack.images.envelope import PAYLOAD

if TYPE_CHECKING:
    from sigstore.models import ClientTrustConfig, TrustedRoot
    from sigstore.oidc import IdentityToken
    from sigstore.sign import Signer as _SigstoreSigner
    from sigstore.verify import Verifier

_TOKEN = "SIGSTORE_ID_TOKEN"  # noqa: S105  (the variable's name)
_REQUEST = "ACTIONS_ID_TOKEN_REQUEST_URL"
_CONFIG = "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json"
_LARGEST = 16 << 20
_SECONDS = 300.0
_EXTRA = 'pip install "git-carry[keyless]"'
_PERMISSION = "GitHub: permissions: id-token: write; GitLab: id_tokens: SIGSTORE_ID_TOKEN: aud: sigstore"


@dataclass(frozen=True, slots=True)
class Identity:
    """An identity that an issuer vouches for, and the verifier with the roots of trust."""

    identity: str
    issuer: str
    verifier: "Verifier" = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """The identity with its issuer, for messages."""
        return f"{self.identity} ({self.issuer})"

    def payload(self, given: Bundle) -> bytes | None:
        """Return the content of a bundle that this identity has signed, else None."""
        from sigstore.models import Bundle as Parsed  # noqa: PLC0415
        from sigstore.verify import policy  # noqa: PLC0415

        expected = policy.Identity(identity=self.identity, issuer=self.issuer)
        try:
            kind, payload = self.verifier.verify_dsse(Parsed.from_json(given.data), expected)
        except Exception:  # anybody may attach bytes on which some parser fails in its own way
            return None
        return payload if kind == PAYLOAD else None


class KeylessSigner:
    """Signs as the identity of the CI's token. The certificate is requested at the first signature."""

    def __init__(self, config: "ClientTrustConfig", trusted: Identity) -> None:
        self.trusted = trusted
        self._config = config
        self._signer: _SigstoreSigner | None = None

    def sign(self, statement: bytes) -> bytes:
        """Sign a statement, and return the bundle.

        Raises:
            StackError: There is no token, no certificate or no log entry, or the certificate is for another identity.

        """
        from sigstore.dsse import Statement  # noqa: PLC0415

        try:
            if self._signer is None:
                self._signer = self._certified()
            made = self._signer.sign_dsse(Statement(statement)).to_json().encode()
        except StackError:
            raise
        except Exception as failed:  # its message may hold the server's answer, and that the token
            raise StackError(
                f"the certificate authority or the log refuses to sign as {self.trusted.name} ({type(failed).__name__})",
                "see its log; the token may have expired",
            ) from None
        if self.trusted.payload(Bundle(made, b"", None, b"")) != statement:
            raise StackError(
                f"the certificate is not for {self.trusted.name}", "name the identity: --identity IDENTITY --issuer ISSUER"
            )
        return made

    def _certified(self) -> "_SigstoreSigner":
        """Request a certificate for a fresh token: pushing a large image takes longer than most are valid."""
        from sigstore.sign import Signer, SigningContext  # noqa: PLC0415

        context = SigningContext.from_trust_config(self._config)
        _bound(context)
        return Signer(_token(), context)


def signer(trust_config: Path | None, identity: str | None, issuer: str | None) -> KeylessSigner:
    """Prepare to sign as the identity that the CI's token names.

    Args:
        trust_config: The services and roots of a Sigstore instance; None: those of sigstore.dev.
        identity: The identity in the certificate, if it cannot be told from the token.
        issuer: Its issuer; the default is the token's.

    Raises:
        StackError: There is no token, or the package is not installed.

    """
    _demand()
    token = _token()
    config = _config(trust_config)
    claims = _claims(str(token))
    found = Identity(identity or _named(claims, token), issuer or token.federated_issuer, _verifier(config.trusted_root))
    return KeylessSigner(config, found)


def identity(name: str, issuer: str, trust_config: Path | None) -> Identity:
    """Prepare to verify what an identity has signed.

    Args:
        name: The identity, as its certificate names it: a workflow's address, or an e-mail address.
        issuer: The address of the OIDC issuer that vouches for it.
        trust_config: A trust configuration or a trusted root of a Sigstore instance; None: that of sigstore.dev.

    Raises:
        StackError: The package is not installed, or the roots of trust cannot be had.

    """
    _demand()
    return Identity(name, issuer, _verifier(_roots(trust_config)))


def ambient() -> bool:
    """Tell whether the CI offers a token."""
    return bool(os.environ.get(_TOKEN) or os.environ.get(_REQUEST))


def _demand() -> None:
    try:
        import sigstore  # noqa: F401, PLC0415
    except ImportError as missing:
        raise StackError("keyless signatures need the package sigstore", _EXTRA) from missing


def _token() -> "IdentityToken":
    from sigstore.oidc import IdentityToken, detect_credential  # noqa: PLC0415

    try:
        raw = os.environ.get(_TOKEN) or detect_credential()
    except Exception as refused:  # its message may hold the server's answer, and that the token
        raise StackError(f"the CI gives no token ({type(refused).__name__})", _PERMISSION) from None
    if not raw:
        raise StackError("there is no OIDC token: keyless signatures are made in a CI's job", _PERMISSION)
    try:
        return IdentityToken(raw)
    except Exception as bad:
        raise StackError(f"the CI's token is not valid for sigstore ({type(bad).__name__})", _PERMISSION) from None


def _claims(raw: str) -> Mapping[str, Any]:
    """Return a token's claims; the certificate authority verifies them."""
    import jwt  # noqa: PLC0415

    claims: Mapping[str, Any] = jwt.decode(raw, options={"verify_signature": False})
    return claims


def _named(claims: Mapping[str, Any], token: "IdentityToken") -> str:
    """Return the identity that Fulcio writes into the certificate: for GitHub and GitLab the address of the workflow's file."""
    workflow, pipeline = claims.get("job_workflow_ref"), claims.get("ci_config_ref_uri")
    if workflow:
        return f"{str(claims.get('server_url', 'https://github.com')).rstrip('/')}/{workflow}"
    if pipeline:
        return f"https://{pipeline}"
    return str(claims["email"]) if claims.get("email") else token.identity


def _config(file: Path | None) -> "ClientTrustConfig":
    from sigstore.models import ClientTrustConfig  # noqa: PLC0415

    if file is None:
        return _production()
    try:
        return ClientTrustConfig.from_json(_read(file).decode())
    except ValueError as bad:
        raise StackError(f"{file} is not a client trust configuration of Sigstore", "name one with --trust-config") from bad


def _roots(file: Path | None) -> "TrustedRoot":
    from sigstore.models import TrustedRoot  # noqa: PLC0415
    from sigstore_models.trustroot.v1 import TrustedRoot as Model  # noqa: PLC0415

    if file is None:
        return _production().trusted_root
    data = _read(file)
    try:
        if bounded_http.parsed(data).get("mediaType") == _CONFIG:
            return _config(file).trusted_root
        return TrustedRoot(Model.from_json(data))
    except Exception as bad:
        raise StackError(f"{file} is neither a trusted root nor a trust configuration of Sigstore", "name one") from bad


def _production() -> "ClientTrustConfig":
    from sigstore.models import ClientTrustConfig  # noqa: PLC0415

    try:
        return ClientTrustConfig.production()
    except Exception as failed:
        raise StackError(
            f"the roots of sigstore.dev cannot be had ({type(failed).__name__})",
            "check the network, or name a file with --trust-config",
        ) from failed


def _verifier(roots: "TrustedRoot") -> "Verifier":
    from sigstore.verify import Verifier  # noqa: PLC0415

    return Verifier(trusted_root=roots)


def _bound(context: Any) -> None:
    """Limit the time and size of the services' answers; the package itself waits without end."""
    for session in (context._fulcio.session, context._rekor._session):
        for scheme in ("https://", "http://"):
            session.mount(scheme, bounded_http.Bounded(seconds=_SECONDS))


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(_LARGEST)
    except OSError as failed:
        raise StackError(f"{file} cannot be read ({failed.strerror})", "name a file with --trust-config") from failed
