# SPDX-License-Identifier: Apache-2.0
"""The example policies for Kyverno and sigstore's policy-controller, held against the fields that their resources have."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from stack.images import statement
from stack.store import cache

from ..forge.contract import missing

POLICIES = Path(__file__).parents[2] / "examples/policies"
KYVERNO = "cloudcoil-models-kyverno==1.13.4.0"
"""Models made from the resource definitions of Kyverno 1.13.4, on the package index."""
_CHECK = """
import json, sys
from cloudcoil.models.kyverno import v1
given = json.load(sys.stdin)
print(v1.ClusterPolicy.model_validate(given).model_dump_json(by_alias=True, exclude_unset=True))
"""

# Of config/300-clusterimagepolicy.yaml (v1beta1) in sigstore/policy-controller at commit f925c0c1a412: no registry has it.
TEXT, FLAG = str, bool
_POLICY = {"type": TEXT, "data": TEXT, "includeSpec": FLAG, "includeObjectMeta": FLAG, "includeTypeMeta": FLAG}
_KEY = {"data": TEXT, "kms": TEXT, "hashAlgorithm": TEXT, "secretRef": {"name": TEXT, "namespace": TEXT}}
_IDENTITY = {"issuer": TEXT, "issuerRegExp": TEXT, "subject": TEXT, "subjectRegExp": TEXT}
_AUTHORITY = {
    "name": TEXT,
    "signatureFormat": TEXT,
    "key": _KEY,
    "keyless": {"url": TEXT, "identities": [_IDENTITY], "trustRootRef": TEXT, "insecureIgnoreSCT": FLAG, "ca-cert": _KEY},
    "ctlog": {"url": TEXT, "trustRootRef": TEXT},
    "attestations": [{"name": TEXT, "predicateType": TEXT, "policy": _POLICY}],
    "source": [{"oci": TEXT, "tagPrefix": TEXT}],
}
_SPEC = {"mode": TEXT, "images": [{"glob": TEXT}], "authorities": [_AUTHORITY], "policy": _POLICY}
CLUSTER_IMAGE_POLICY = {"apiVersion": TEXT, "kind": TEXT, "metadata": {"name": TEXT}, "spec": _SPEC}


def policy(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((POLICIES / f"{name}.yaml").read_text())
    return content


def faults(value: Any, wanted: Any, place: str = "") -> list[str]:
    """List the fields of a value that its description lacks."""
    if isinstance(wanted, dict) and isinstance(value, dict):
        unknown = [f"{place}.{key} is unknown" for key in value.keys() - wanted.keys()]
        return unknown + [
            one for key in value.keys() & wanted.keys() for one in faults(value[key], wanted[key], f"{place}.{key}")
        ]
    if isinstance(wanted, list) and isinstance(value, list):
        return [one for number, item in enumerate(value) for one in faults(item, wanted[0], f"{place}[{number}]")]
    return [] if isinstance(wanted, type) and isinstance(value, wanted) else [f"{place} is of another type"]


def checked(content: dict[str, Any]) -> dict[str, Any]:
    """Return what Kyverno's models understand of a policy; of what is not allowed they say so and fail."""
    folder = cache.root() / "tests" / KYVERNO.replace("==", "-")
    with cache.lock(folder):
        if not folder.exists():
            try:
                with tempfile.TemporaryDirectory(prefix=".kyverno-", dir=folder.parent) as name:
                    made = Path(name, "packages")
                    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(made), KYVERNO]
                    subprocess.run(command, check=True, capture_output=True)
                    made.rename(folder)
            except (OSError, subprocess.CalledProcessError) as failed:
                missing(KYVERNO, failed)
    environment = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", _CHECK], input=json.dumps(content), env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-1000:]
    understood: dict[str, Any] = json.loads(done.stdout)
    return understood


@pytest.mark.images
@pytest.mark.parametrize("name", ["kyverno-key", "kyverno-keyless"])
def test_kyvernos_models_know_all_that_a_policy_says(name: str) -> None:
    given = policy(name)
    assert checked(given) == given


@pytest.mark.images
def test_kyvernos_models_find_mistakes() -> None:
    unknown = policy("kyverno-keyless")
    unknown["spec"]["rules"][0]["verifyImages"][0]["kind"] = "SigstoreBundle"
    assert checked(unknown) != unknown
    wrong = policy("kyverno-keyless")
    wrong["spec"]["rules"][0]["verifyImages"][0]["type"] = "Bundle"
    with pytest.raises(AssertionError, match="SigstoreBundle"):
        checked(wrong)


@pytest.mark.parametrize("name", ["policy-controller-key", "policy-controller-keyless"])
def test_policy_controller_has_the_fields_of_a_policy(name: str) -> None:
    given = policy(name)
    assert faults(given, CLUSTER_IMAGE_POLICY) == []
    (authority,) = given["spec"]["authorities"]
    # Of pkg/webhook/validator.go there: bundles count for keyless authorities only.
    assert authority["signatureFormat"] == ("bundle" if "keyless" in authority else "legacy")
    assert ("key" in authority) != ("keyless" in authority)
    authority["format"] = authority.pop("signatureFormat")
    authority["name"] = 1
    assert len(faults(given, CLUSTER_IMAGE_POLICY)) == 2


@pytest.mark.parametrize("file", sorted(POLICIES.glob("*.yaml")), ids=lambda file: file.stem)
def test_each_policy_asks_for_what_publishing_attests(file: Path) -> None:
    text = file.read_text()
    assert f": {statement.SUMMARY}\n" in text
    assert re.search(r"PASSED", text)
    assert f"{statement.GATE}sm121" in text
