# SPDX-License-Identifier: Apache-2.0
"""Keyless signatures, with an issuer, a certificate authority and a log on loopback."""

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from stack.base.errors import StackError
from stack.images import attestations, bundle, image, keyless, layout, referrers, skopeo, statement, verify
from stack.images.image import Image
from stack.images.keyless import Identity, KeylessSigner
from stack.images.publish import Published, publish
from stack.images.reference import Reference
from stack.images.registry_client import RegistryClient

from . import newer
from .sigstore_services import WORKFLOW, Services, serving
from .test_publish import KINDS
from .world import World

_VARIABLES = (
    "GITHUB_ACTIONS",
    "ACTIONS_ID_TOKEN_REQUEST_URL",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "SIGSTORE_ID_TOKEN",
    "GITLAB_CI",
)
SCRIPT = "import sys; sys.argv[0] = 'stack'; from stack.cli import main; main()"


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    """The services, and a job on GitHub that may ask for a token."""
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with serving(Services()) as one:
        for name, value in one.github.items():
            monkeypatch.setenv(name, value)
        yield one


def config(services: Services, folder: Path) -> Path:
    file = folder / "trust.json"
    file.write_text(json.dumps(services.trust_config))
    return file


def roots(services: Services, folder: Path) -> Path:
    file = folder / "roots.json"
    file.write_text(json.dumps(services.trusted_root))
    (folder / "authority.pem").write_bytes(services.authority.public_bytes(Encoding.PEM))
    for name, key in (("log", services.log.key), ("certificates", services.certificates_key)):
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (folder / f"{name}.pem").write_bytes(public)
    return file


def signer(services: Services, folder: Path) -> KeylessSigner:
    return keyless.signer(config(services, folder), None, None)


def identity(services: Services, folder: Path) -> Identity:
    return keyless.identity(services.identity, services.address, roots(services, folder))


def published(world: World, services: Services, name: str, digest: str, used: KeylessSigner | None = None) -> Published:
    used = used or signer(services, world.root)
    return publish(world.asked(name, world.verdict(digest)), world.stack, used, lambda _: None)


STATEMENT = layout.encode(
    {
        "_type": statement.TYPE,
        "subject": [{"name": "it", "digest": {"sha256": "a" * 64}}],
        "predicateType": "urn:x",
        "predicate": {"a": 1},
    }
)


def test_the_identity_of_a_job_signs(services: Services, tmp_path: Path) -> None:
    made = bundle.read(signer(services, tmp_path).sign(STATEMENT))
    assert made.certificate is not None
    assert identity(services, tmp_path).payload(made) == STATEMENT
    assert services.issued == [f"https://github.com/{WORKFLOW}"]
    assert len(services.log.leaves) == 1 + 1


def test_a_certificate_is_used_for_all_statements(services: Services, tmp_path: Path) -> None:
    used = signer(services, tmp_path)
    trusted = identity(services, tmp_path)
    for _ in range(5):  # the log's proofs grow
        assert trusted.payload(bundle.read(used.sign(STATEMENT))) == STATEMENT
    assert len(services.issued) == 1


def test_a_statement_that_is_too_large_is_not_signed(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "LARGEST", 100)
    with pytest.raises(StackError, match="the largest without a key has 100"):
        attestations.sign(signer(services, tmp_path), STATEMENT)
    assert services.issued == []


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        (
            {"ci_config_ref_uri": "gitlab.example/a/b//.gitlab-ci.yml@refs/heads/main", "sub": "x"},
            "https://gitlab.example/a/b//",
        ),
        ({"email": "ada@example.org", "sub": "x"}, "ada@example.org"),
    ],
)
def test_a_token_of_gitlab_or_of_a_person_is_in_a_variable(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, claims: dict[str, str], name: str
) -> None:
    for variable in services.github:
        monkeypatch.delenv(variable)
    assert not keyless.ambient()
    services.claims = claims
    monkeypatch.setenv("SIGSTORE_ID_TOKEN", services.token())
    assert keyless.ambient()
    used = signer(services, tmp_path)
    assert used.trusted.identity.startswith(name)
    assert used.trusted.payload(bundle.read(used.sign(STATEMENT))) == STATEMENT


def strange(services: Services, folder: Path, change: str) -> tuple[bundle.Bundle, Identity]:
    """A bundle that is not by the identity with the roots of `services`."""
    trusted = identity(services, folder)
    if change == "another identity":
        services.claims["job_workflow_ref"] = "stranger/fork/.github/workflows/release.yml@refs/heads/main"
    if change == "an expired certificate":
        # The log's clock is an hour late: the certificate was not valid any more, or not yet.
        used = keyless.signer(config(services, folder), None, None)
        services.log.clock = lambda: time.time() + 3600
        with pytest.raises(StackError, match="not for"):
            used.sign(STATEMENT)
        return bundle.read(unchecked(used)), trusted
    made = json.loads(signer(services, folder).sign(STATEMENT))
    material = made["verificationMaterial"]
    entry = material["tlogEntries"][0]
    if change == "another statement":
        made["dsseEnvelope"]["payload"] = base64.b64encode(STATEMENT.replace(b'"a":1', b'"a":2')).decode()
    if change == "another log's entry":
        other = Services(address=services.address)
        other.authority_key, other.certificates_key = services.authority_key, services.certificates_key
        body = base64.b64decode(entry["canonicalizedBody"])
        answer = next(iter(other.log.add(body).values()))
        entry["inclusionPromise"]["signedEntryTimestamp"] = answer["verification"]["signedEntryTimestamp"]
    if change == "no proof of inclusion":
        entry["inclusionProof"]["rootHash"] = base64.b64encode(b"\0" * 32).decode()
    if change == "no entry":
        material["tlogEntries"] = []
    if change == "an entry of another signature":
        second = json.loads(signer(services, folder).sign(STATEMENT))
        material["tlogEntries"] = second["verificationMaterial"]["tlogEntries"]
    if change == "no bytes of a certificate":
        material["certificate"]["rawBytes"] = "AAAA"
    return bundle.read(layout.encode(made)), trusted


def unchecked(used: KeylessSigner) -> bytes:
    """Sign as it does, without looking at what comes out."""
    from sigstore.dsse import Statement  # noqa: PLC0415

    assert used._signer is not None
    return used._signer.sign_dsse(Statement(STATEMENT)).to_json().encode()


@pytest.mark.parametrize(
    "change",
    [
        "another identity",
        "an expired certificate",
        "another statement",
        "another log's entry",
        "no proof of inclusion",
        "no entry",
        "an entry of another signature",
        "no bytes of a certificate",
    ],
)
def test_what_the_identity_has_not_signed_and_logged_does_not_count(services: Services, tmp_path: Path, change: str) -> None:
    made = bundle.read(signer(services, tmp_path).sign(STATEMENT))
    assert identity(services, tmp_path).payload(made) == STATEMENT
    forged, trusted = strange(services, tmp_path, change)
    assert trusted.payload(forged) is None


def test_another_authority_or_issuer_counts_for_nothing(services: Services, tmp_path: Path) -> None:
    made = bundle.read(signer(services, tmp_path).sign(STATEMENT))
    assert replace(identity(services, tmp_path), issuer="https://other.example").payload(made) is None
    with serving(Services()) as other:
        assert identity(other, tmp_path).payload(made) is None
        theirs = keyless.identity(services.identity, services.address, roots(other, tmp_path))
        assert theirs.payload(made) is None


def test_a_certificate_for_another_identity_than_named_is_refused(services: Services, tmp_path: Path) -> None:
    used = keyless.signer(config(services, tmp_path), "https://github.com/other", None)
    with pytest.raises(StackError, match=r"the certificate is not for https://github.com/other"):
        used.sign(STATEMENT)


def test_without_a_token_it_says_which_permission_is_missing(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN")
    with pytest.raises(StackError, match=r"gives no token.*id-token: write"):
        signer(services, tmp_path)
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(StackError, match="there is no OIDC token"):
        signer(services, tmp_path)
    monkeypatch.setenv("SIGSTORE_ID_TOKEN", "no token")
    with pytest.raises(StackError, match="is not valid for sigstore") as refused:
        signer(services, tmp_path)
    assert "no token" not in str(refused.value)
    monkeypatch.setenv("SIGSTORE_ID_TOKEN", services.token(audience="others"))
    with pytest.raises(StackError, match="is not valid for sigstore"):
        signer(services, tmp_path)


def test_without_the_package_it_says_what_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sigstore", None)
    for use in (lambda: keyless.signer(None, None, None), lambda: keyless.identity("a", "b", None)):
        with pytest.raises(StackError, match="pip install"):
            use()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"mediaType": "x"}', "[" * 100000])
def test_a_damaged_trust_configuration_is_refused_in_one_line(services: Services, tmp_path: Path, content: str) -> None:
    file = tmp_path / "damaged.json"
    file.write_text(content)
    for use in (lambda: keyless.signer(file, None, None), lambda: keyless.identity("a", "b", file)):
        with pytest.raises(StackError, match=r"not a client trust configuration|neither a trusted root"):
            use()
    with pytest.raises(StackError, match="cannot be read"):
        keyless.identity("a", "b", tmp_path / "missing.json")


COSIGNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "cosign 2": ("trixie", ("--new-bundle-format",)),
    "cosign 3": ("forky", ()),
}


def cosigned(world: World, name: str, kind: str, version: str, who: str, issuer: str) -> subprocess.CompletedProcess[str]:
    suite, more = COSIGNS[version]
    trust = [
        "--trusted-root",
        str(world.root / "roots.json"),
        "--certificate-identity",
        who,
        "--certificate-oidc-issuer",
        issuer,
    ]
    # cosign 2.5 asks sigstore.dev for roots that it then takes from the file, unless variables name others.
    roots_of_cosign_2 = {
        "SIGSTORE_ROOT_FILE": "authority.pem",
        "SIGSTORE_REKOR_PUBLIC_KEY": "log.pem",
        "SIGSTORE_CT_LOG_PUBLIC_KEY_FILE": "certificates.pem",
    }
    program = newer.program("cosign", suite) / "usr/bin/cosign"
    command = [str(program), "verify-attestation", *trust, "--type", kind, *more, f"{world.host}/{name}"]
    environment = os.environ | roots_of_cosign_2
    return subprocess.run(command, cwd=world.root, env=environment, capture_output=True, text=True, check=False)


def test_an_image_is_published_without_a_key(world: World, services: Services) -> None:
    digest = world.image()
    assert published(world, services, "keyless-job:1.0", digest).new
    report = verify.verify(world.name("keyless-job:1.0"), world.stack, identity(services, world.root))
    assert report.holds, report.problems
    assert {one.kind for one in report.claims.statements} == {*KINDS}
    assert (report.claims.bundled, report.claims.earlier) == (4, 0)
    # Nothing is signed again, without a new certificate.
    assert not published(world, services, "keyless-job:1.0", digest).new
    assert len(services.issued) == 1
    assert len(services.log.leaves) == 1 + 4
    # Neither another identity nor a key vouches for it.
    stranger = replace(identity(services, world.root), identity="https://github.com/stranger")
    assert "none of 4 attestations is signed" in verify.published(world.name("keyless-job:1.0"), stranger).problems[0]
    assert not verify.published(world.name("keyless-job:1.0"), world.signer.public).holds


@pytest.mark.parametrize("version", COSIGNS)
def test_cosign_verifies_keyless_attestations(world: World, services: Services, version: str) -> None:
    name = f"keyless-{version.replace(' ', '-')}:1.0"
    published(world, services, name, world.image({"version": version.encode()}))
    roots(services, world.root)
    for kind in KINDS:
        good = cosigned(world, name, kind, version, services.identity, services.address)
        assert good.returncode == 0, good.stderr
    for who, issuer in ((f"{services.identity}x", services.address), (services.identity, "https://other.example")):
        assert cosigned(world, name, statement.PROVENANCE, version, who, issuer).returncode != 0
    with serving(Services()) as other:
        roots(other, world.root)
    assert cosigned(world, name, statement.PROVENANCE, version, services.identity, services.address).returncode != 0


def test_key_and_identity_stand_side_by_side(world: World, services: Services) -> None:
    digest = world.image()
    world.publish("both:1.0", world.verdict(digest))
    assert published(world, services, "both:1.0", digest).new
    for trusted in (world.signer.public, identity(services, world.root)):
        report = verify.verify(world.name("both:1.0"), world.stack, trusted)
        assert report.holds, report.problems
        assert len(report.claims.statements) == 4
        assert report.claims.foreign == 4


LIES: dict[str, tuple[Callable[[Image], Image], dict[str, object], str]] = {
    "about another image": (
        lambda found: replace(found, digest="sha256:" + "b" * 64, platforms=()),
        {},
        "subject: one is for sha256:bbb",
    ),
    "listed as another kind": (
        lambda found: found,
        {"annotations": {referrers.PREDICATE: statement.SUMMARY}},
        "bundles: one is listed as",
    ),
    "attached elsewhere": (
        lambda found: found,
        {"subject": {"mediaType": layout.MANIFEST, "digest": "sha256:" + "b" * 64, "size": 1}},
        "bundles: one is attached to sha256:bbb",
    ),
}


@pytest.mark.parametrize("what", LIES)
def test_what_the_right_identity_has_signed_has_to_fit(world: World, services: Services, what: str) -> None:
    subject, changed, refused = LIES[what]
    name = f"keyless-{what.replace(' ', '-')}:1.0"
    used = signer(services, world.root)
    published(world, services, name, world.image({"what": what.encode()}), used)
    found = image.read(world.name(name))
    data = used.sign(statement.make(subject(found), "it", "urn:test", {"a": 1}))
    manifest, entry = referrers.artifact(found, data)
    made = layout.encode(json.loads(manifest) | changed)
    with RegistryClient(Reference(found.reference.place)) as client:
        client.put_blob(data)
        client.put_manifest(skopeo.digest(made), made, layout.MANIFEST)
        referrers.enlist(client, found.digest, [entry | {"digest": skopeo.digest(made), "size": len(made)}])
    problems = verify.published(world.name(name), used.trusted).problems
    assert any(one.startswith(refused) for one in problems), problems


def run(world: World, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`stack image …`; the secrets are in its environment."""
    command = [sys.executable, "-c", SCRIPT, "image", *arguments]
    return subprocess.run(command, cwd=world.root, capture_output=True, text=True, check=False)


def test_the_token_is_nowhere(world: World, services: Services) -> None:
    """By the command line: a job's environment is enough, and neither output nor files have a token."""
    world.verdict(world.image())
    config(services, world.root)
    options = [
        "--gate",
        "cpu",
        "--verdict",
        "v.json",
        "--signers",
        str(world.policy.signers),
        "--gates",
        str(world.policy.gates),
    ]
    name = f"{world.host}/by-hand:1.0"
    services.refuse = True
    refused = run(world, "publish", name, *options, "--trust-config", "trust.json")
    assert refused.returncode == 2
    assert "refuses to sign as https://github.com/" in refused.stderr
    services.refuse = False
    done = run(world, "publish", name, *options, "--trust-config", "trust.json")
    assert done.returncode == 0, done.stderr
    trust = ["--identity", services.identity, "--issuer", services.address, "--trust-config", "trust.json"]
    checked = run(world, "verify", name, *trust, "--json")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    moved = run(world, "promote", name, "latest", *trust)
    assert moved.returncode == 0, moved.stderr
    assert run(world, "verify", name, "--identity", services.identity).returncode == 2
    assert run(world, "verify", name, "--key", "release.pub.pem", *trust).returncode == 2
    assert run(world, "promote", name, "latest").returncode == 2
    head = services.token().partition(".")[0]  # of every token of this issuer
    said = "".join(one.stdout + one.stderr for one in (refused, done, checked, moved))
    assert head not in said
    assert services.request_token not in said
    for file in world.root.parent.rglob("*"):
        if file.is_file():
            assert head.encode() not in file.read_bytes(), file
    assert all("eyJ" not in address for address in services.seen)


def test_an_earlier_form_by_a_key_is_none_of_an_identity(world: World, services: Services) -> None:
    digest = world.image()
    world.publish("earlier:1.0", world.verdict(digest))
    report = verify.published(world.name("earlier:1.0"), identity(services, world.root))
    assert not report.holds
    assert report.claims.foreign == 4
