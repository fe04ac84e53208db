# SPDX-License-Identifier: Apache-2.0
"""A stack, an image of it, verdicts of that image, and keys."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stack.images import envelope, labels, reference
from stack.images.policy import Policy
from stack.images.publish import Published, PublishRequest, publish
from stack.images.reference import Reference
from stack.model import verdict
from stack.model.stack import Stack, load
from stack.model.verdict import Case, Verdict
from stack.validation import gates, signing

from ..model.factories import FILES, write
from ..validation.factories import CHAT, CPU, CPU_GATE, ONE, TWO, answered, exact, of
from . import factories

GATES = f"""\
{CPU_GATE}[spark]
has = ["cpu"]
[[spark.cases]]
names = "kernels/*"
least = 1
"""
GOOD = (exact(ONE), exact(TWO, rel=1.0, count=3), answered(CHAT))
BOM = b'{"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": []}'


__all__ = ["CPU", "GOOD", "Case", "Verdict", "World", "make", "of"]


@dataclass(frozen=True, slots=True)
class World:
    """All that publishing needs; `host` is the registry's."""

    root: Path
    host: str

    @property
    def stack(self) -> Stack:
        return load(self.root)

    @property
    def layout(self) -> Path:
        return self.root / ".stack/images/one"

    @property
    def signer(self) -> envelope.Signer:
        return envelope.signer(self.root / "release.pem")

    @property
    def policy(self) -> Policy:
        """Gates and signers, outside of the checkout."""
        folder = policy_folder(self.root)
        return Policy(folder / "gates.toml", folder / "allowed_signers")

    def name(self, text: str) -> Reference:
        return reference.parse(f"{self.host}/{text}")

    def image(self, files: Mapping[str, bytes] | None = None, **said: str) -> str:
        """An image of the stack in the layout; its digest."""
        return factories.image(self.layout, {**labels.of(self.stack), **said}, files)

    def verdict(self, image: str | None, name: str = "v.json", **fields: Any) -> Path:
        """A verdict of an image that passes, signed by a maintainer."""
        one = of(self.stack, *GOOD, machine=CPU, **fields)
        if image is not None:
            one = replace(one, image=image, gates=gates.digests(self.root / gates.FILE))
        return self.written(one, name)

    def written(self, one: Verdict, name: str = "v.json", key: str = "maintainer") -> Path:
        path = self.root / name
        path.write_bytes(verdict.write(one))
        signing.sign(path, self.root / key)
        return path

    def asked(self, name: str, *verdicts: Path, **more: Any) -> PublishRequest:
        source = Reference(str(self.layout), "latest", layout=True)
        boms = (self.root / "python.cdx.json",)
        return PublishRequest(self.name(name), source, "cpu", verdicts, self.policy, boms, **more)

    def publish(self, name: str, *verdicts: Path, **more: Any) -> Published:
        return publish(self.asked(name, *verdicts, **more), self.stack, self.signer, lambda _: None)


def make(root: Path, host: str) -> World:
    """A world in a folder."""
    # Without patches: those of FILES are for sources that nobody has, and publishing compares patches with their sources.
    write(root, {path: data.partition(b"[[patch]]")[0] for path, data in FILES.items() if not path.endswith(".patch")})
    (root / "validation").mkdir()
    (root / gates.FILE).write_text(GATES)
    (root / "python.cdx.json").write_bytes(BOM)
    keys(root)
    (policy_folder(root) / "gates.toml").write_text(GATES)
    return World(root, host)


def policy_folder(root: Path) -> Path:
    return root.with_name(f"{root.name}-policy")


def keys(root: Path) -> None:
    """Keys of two who sign verdicts, of whom one counts, and three for images, of which one is of another kind."""
    for name in ("maintainer", "stranger"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(root / name)], check=True)
    public = (root / "maintainer.pub").read_text()
    policy_folder(root).mkdir(exist_ok=True)
    (policy_folder(root) / "allowed_signers").write_text(f'ada@example.org namespaces="{signing.NAMESPACE}" {public}')
    kinds = {
        "release": ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"),
        "other": ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"),
        "edwards": ("-algorithm", "ed25519"),
        "rsa": ("-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"),
    }
    for name, options in kinds.items():
        subprocess.run(["openssl", "genpkey", *options, "-out", str(root / f"{name}.pem")], check=True, capture_output=True)
        public_key = ["openssl", "pkey", "-in", str(root / f"{name}.pem"), "-pubout", "-out", str(root / f"{name}.pub.pem")]
        subprocess.run(public_key, check=True)
