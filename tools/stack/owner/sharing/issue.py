# SPDX-License-Identifier: Apache-2.0
"""Prepare an issue with a verdict in it: its title, its text, and the address of a form that has both filled in."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

from stack.base.errors import StackError
from stack.base.text import counted
from stack.model import verdict as verdicts
from stack.model.verdict import Outcome, Verdict
from stack.store import git
from stack.validation.bench.suite import measured

LONGEST = 7000
"""Characters of an address; GitHub refuses about 8,200."""
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}")
_SSH = re.compile(r"(?:ssh://)?git@([\w.-]{1,100})[:/](.{1,150})")
_HOST = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,98}[a-z0-9])?(?::[0-9]{1,5})?")
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository of GitHub, or of a host with the same forms."""

    host: str
    name: str

    @property
    def address(self) -> str:
        """Its address on the web."""
        return f"https://{self.host}/{self.name}"


@dataclass(frozen=True, slots=True)
class Issue:
    """An issue: its title, its text, and the address of the form. `whole`: the text has the verdict itself in it."""

    title: str
    body: str
    address: str
    whole: bool


def repository(text: str) -> Repository:
    """Read a repository from OWNER/NAME, or from the address of a git remote.

    Raises:
        StackError: it is neither.

    """
    plain = text.removesuffix("/").removesuffix(".git")
    if not plain.isprintable():  # urlsplit drops line breaks
        plain = ""
    if _REPOSITORY.fullmatch(plain):
        return Repository("github.com", plain)
    host, path = _split(plain)
    if not _HOST.fullmatch(host) or not _REPOSITORY.fullmatch(path):
        raise StackError(
            f"{text!r:.100} is not a repository", "write OWNER/NAME, or the address of a repository, after --repository"
        )
    return Repository(host, path)


def _split(address: str) -> tuple[str, str]:
    """Return the host and the path of an address; both are empty if it is none."""
    if found := _SSH.fullmatch(address):
        return found[1].lower(), found[2]
    try:
        parts = urlsplit(address)
    except ValueError:
        return "", ""
    if parts.scheme not in ("https", "http", "ssh"):
        return "", ""
    # A user or a token in the address of a remote must not go on.
    return parts.netloc.rpartition("@")[2].lower(), parts.path.strip("/")


def origin(root: Path) -> Repository | None:
    """Return the repository of a stack's remote `origin`; None if it has none.

    Raises:
        StackError: its address is not that of a repository on the web.

    """
    done = git.run(["remote", "get-url", "--", "origin"], cwd=root, user_config=True, accept=(0, 2, 128, 129))
    return None if done.returncode else repository(done.stdout.decode("utf-8", "replace").partition("\n")[0])


def of(reduced: Verdict, where: Repository) -> Issue:
    """Make the issue of a reduced verdict. If the verdict does not fit into an address, the text asks for the file."""
    title = _title(reduced)
    summary = "\n".join(_summary(reduced))
    data = verdicts.write(reduced).decode()
    whole = f"{summary}\n\n<details><summary>verdict.json</summary>\n\n```json\n{data}```\n</details>\n"
    address = _address(where, title, whole)
    if len(address) <= LONGEST:
        return Issue(title, whole, address, True)
    short = f"{summary}\n\nThe verdict is too long for this form: its file is attached.\n"
    return Issue(title, short, _address(where, title, short), False)


def _address(where: Repository, title: str, body: str) -> str:
    return f"{where.address}/issues/new?{urlencode({'title': title, 'body': body}, quote_via=quote)}"


def _title(reduced: Verdict) -> str:
    gpus = ", ".join(dict.fromkeys(gpu.name for gpu in reduced.machine.gpus)) or reduced.machine.cpu
    failed = sum(case.outcome is Outcome.FAILED for case in reduced.cases)
    said = f"{counted(failed, 'case')} failed" if failed else "no case failed"
    return f"Verdict: {reduced.recipe or reduced.versions.get('model', 'a server')} on {gpus}, {said}"


def _summary(reduced: Verdict) -> Iterator[str]:
    machine = reduced.machine
    yield f"- stack `{reduced.stack}`"
    if reduced.image is not None:
        yield f"- image `{reduced.image}`"
    yield f"- {reduced.made}, {machine.system}, {machine.cpu}, {machine.cores} cores, {machine.memory / 1e9:.0f} GB"
    for gpu in machine.gpus:
        yield f"- {gpu.name}, compute capability {gpu.capability}, driver {gpu.driver}, CUDA {machine.cuda or '?'}"
    yield "- " + ", ".join(f"{name} {value}" for name, value in reduced.versions.items())
    ended = {outcome: sum(case.outcome is outcome for case in reduced.cases) for outcome in Outcome}
    yield "- " + ", ".join(f"{count} {outcome}" for outcome, count in ended.items() if count)
    yield from _speeds(reduced)
    failed = [case for case in reduced.cases if case.outcome is Outcome.FAILED]
    if failed:
        yield "\n| failed | why |\n|---|---|"
        yield from (f"| `{case.name}` | {case.why} |" for case in failed[:_SHOWN])


def _speeds(reduced: Verdict) -> Iterator[str]:
    results = [result for case in reduced.cases if (result := measured(case)) is not None]
    if results:
        yield "\n| test | prompt t/s | answer t/s |\n|---|---|---|"
        for result in results:
            prefill, decode = (sum(runs) / len(runs) for runs in (result.prefill, result.decode))
            yield f"| {result.size.name} | {prefill:.0f} | {decode:.1f} |"
