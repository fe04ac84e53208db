# SPDX-License-Identifier: Apache-2.0
"""Gates and signers come from where a pull request cannot change them."""

from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.images import policy
from stack.store import git

from ..validation.factories import CPU_GATE

WEAK = CPU_GATE.replace("least = 2", "least = 1")
IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@example.org")


def commit(root: Path) -> None:
    git.run(["add", "--all"], cwd=root)
    git.run([*IDENTITY, "commit", "--quiet", "--message", "x"], cwd=root)


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own folder, with a gate and signers in it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = policy.folder()
    folder.mkdir(parents=True)
    (folder / "gates.toml").write_text(CPU_GATE)
    (folder / "allowed_signers").write_text("ours")
    return folder


@pytest.fixture
def root(tmp_path: Path, user: Path) -> Path:
    """A clone whose branch has a weaker gate and one more signer than the remote's main."""
    remote, root = tmp_path / "remote", tmp_path / "clone"
    (remote / "validation").mkdir(parents=True)
    git.run(["init", "--quiet", "--initial-branch", "main"], cwd=remote)
    (remote / "validation/gates.toml").write_text(CPU_GATE)
    (remote / "validation/allowed_signers").write_text("ours")
    commit(remote)
    git.run(["clone", "--quiet", str(remote), str(root)])
    git.run(["switch", "--quiet", "--create", "pull"], cwd=root)
    (root / "validation/gates.toml").write_text(WEAK)
    (root / "validation/allowed_signers").write_text("ours and theirs")
    commit(root)
    git.run(["branch", "--force", "main", "pull"], cwd=root)
    return root


def refuse(said: str, root: Path, gates: Path | None = None, signers: Path | None = None, protected: str | None = None) -> None:
    with pytest.raises(StackError, match=said), policy.trusted(root, gates, signers, protected):
        pass


@pytest.mark.parametrize("protected", [None, "origin/main"])
def test_a_pull_request_changes_neither_gates_nor_signers(root: Path, protected: str | None) -> None:
    with policy.trusted(root, None, None, protected) as found:
        assert (found.gates.read_text(), found.signers.read_text()) == (CPU_GATE, "ours")


def test_a_stack_in_a_folder_of_its_repository(root: Path) -> None:
    """The branch's files are those of the stack's folder, and all of the repository is the checkout."""
    with pytest.raises(StackError, match="origin/main has no"), policy.trusted(root / "validation", None, None, "origin/main"):
        pass
    with (
        pytest.raises(StackError, match="in the checkout"),
        policy.trusted(root / "validation", root / "validation/gates.toml", None, None),
    ):
        pass


@pytest.mark.parametrize("name", ["validation/gates.toml", "link"])
@pytest.mark.parametrize("option", ["gates", "signers"])
def test_a_file_of_the_checkout_is_refused(root: Path, tmp_path: Path, name: str, option: str) -> None:
    (tmp_path / "link").symlink_to(root / "validation/gates.toml")
    file = tmp_path / name if name == "link" else root / name
    refuse(f"where a pull request can change it: name a file outside with --{option}", root, **{option: file})


def test_without_a_file_it_says_where_one_belongs(root: Path, user: Path) -> None:
    (user / "allowed_signers").unlink()
    with pytest.raises(StackError, match="--signers, or use --protected"), policy.trusted(root, None, None, None):
        pass


@pytest.mark.parametrize(
    "branch",
    [
        "main",
        "pull",
        "origin/none",
        "heads/pull",
        "refs/heads/pull",
        "../heads/pull",
        "origin/../../heads/pull",
        "-x/y",
        "a/b:c",
    ],
)
def test_a_branch_of_ones_own_protects_nothing(root: Path, branch: str) -> None:
    with pytest.raises(StackError, match=r"is not a remote's branch|has no"), policy.trusted(root, None, None, branch):
        pass
