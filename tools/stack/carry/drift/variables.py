# SPDX-License-Identifier: Apache-2.0
"""Check that a tree's sources know the environment variables that added lines or settings name."""

import re
from collections.abc import Iterable, Iterator, Mapping, Set

from stack.carry.drift import owners
from stack.carry.drift.finding import Drift, nearest
from stack.carry.drift.tree import ASIDE, Files
from stack.projects import Owner
from stack.projects import known as projects
from stack.store import git
from stack.store.objects import EMPTY_TREE

_SETTING_FILES = re.compile(
    r"(\.(sh|bash|ya?ml|env|hcl|toml)$|(^|/)(Dockerfile|Containerfile|Makefile)[^/]*$|(^|/)\.env[^/]*$)"
)
_PROSE = (".md", ".rst", ".ipynb", ".html", ".patch", ".json")

Occurrence = tuple[str, int, str]
"""(path, line number, text)"""


def owned(files: Files, name: str) -> bool:
    """Return whether a variable belongs to this tree's project."""
    return any(name.startswith(owner.prefix) and _is_of(files, owner) for owner in projects.owners())


def _is_of(files: Files, owner: Owner) -> bool:
    return any(files.is_file(mark) for mark in owner.marks)


def sets(path: str) -> bool:
    """Return whether a file is a script, a Dockerfile or the like, which sets variables."""
    return _SETTING_FILES.search(path) is not None and not path.startswith(".")


def in_settings(lines: Mapping[int, str]) -> Iterator[tuple[str, int]]:
    """Yield (variable, line number) for the variables that lines of such a file set."""
    names = owners.pattern(owners.SET_IN_FILE)
    for number, line in lines.items():
        if not line.lstrip().startswith("#"):
            yield from ((name, number) for name in names.findall(line))


def check(
    files: Files,
    used: Mapping[str, Iterable[tuple[str, int]]],
    declared: Iterable[str],
    added: Mapping[str, frozenset[int]],
    before: Files | None,
    bases: tuple[Files, Files] | None = None,
) -> Iterator[Drift]:
    """Find used variables that the tree does not know.

    A variable that only the patches read is their own, unless upstream knew it on the old base.

    Args:
        files: the tree with the patches.
        used: the places in added lines that rely on each variable.
        declared: the variables that added lines of Python files read or declare.
        added: the numbers of the added lines, by path.
        before: the tree of the old base with the same patches. Without `bases`, it says what was known before.
        bases: the old base and the new base, both without patches. They say what upstream knew, and what it knows.

    """
    table = _table(files)
    open_names = sorted(name for name in used if name not in table and owned(files, name))
    if not open_names:
        return
    open_names = [name for name in open_names if not _is_read_near(files, name, added)]
    own = {name: _own(files, name, added) for name in open_names}
    kept = {
        name for name in open_names if name in set(declared) or any(_declares(name, each, upstream=False) for each in own[name])
    }
    # A search reads a whole tree. So variables that the patches read themselves are only searched for in what is left of the old base.
    then, today = bases if bases is not None else (before, files)
    # Without the bases, the patches' lines have to be told from upstream's by their path and number, or by their text.
    carried, texts = (added, own) if bases is None else ({}, {})
    had = _had(today, then, kept, texts)
    open_names = [name for name in open_names if name not in kept or name in had]
    now = find(today, open_names) if open_names else {}
    foreign = {name: [each for each in places if each[1] not in carried.get(each[0], ())] for name, places in now.items()}
    lost = [name for name in open_names if not any(_declares(name, each, upstream=True) for each in foreign.get(name, ()))]
    had |= _had(today, then, set(lost) - kept, texts)
    for name in lost:
        near = nearest(name, (other for other in known(files) if other != name))
        hint = f"the nearest is {near}" if near else "no variable of the tree is named like it"
        gone = "the upstream no longer knows" if name in had else "nothing in this tree reads"
        for path, line in sorted(set(used[name])):
            yield Drift(path, line, f"{gone} the environment variable {name}: {hint}", name)


def _own(files: Files, name: str, added: Mapping[str, frozenset[int]]) -> list[Occurrence]:
    """Return the added lines that name a variable."""
    found = []
    names = owners.pattern(owners.WORD)
    for path, numbers in added.items():
        data = files.read(path) or b""
        if name.encode() in data:
            lines = data.decode("utf-8", "replace").split("\n")
            texts = ((number, lines[number - 1]) for number in sorted(numbers) if number <= len(lines))
            found += [(path, number, text) for number, text in texts if name in names.findall(text)]
    return found


def _had(files: Files, before: Files | None, names: Set[str], own: Mapping[str, list[Occurrence]]) -> set[str]:
    """Return those variables that only files of the old base knew that are different now.

    A variable in a file that is the same in both trees is not lost. Lines that are `own` do not count.
    """
    if before is None or not names:
        return set()
    found = set()
    for name, places in find(_changed(before, files), sorted(names)).items():
        texts = {(path, text.strip()) for path, _, text in own.get(name, ())}
        theirs = (each for each in places if (each[0], each[2].strip()) not in texts and not _is_aside(each[0]))
        if any(_declares(name, each, upstream=True) for each in theirs):
            found.add(name)
    return found


def _changed(before: Files, files: Files) -> Files:
    """Return those files of the tree `before` that are different in another tree, or not there."""
    differences = before.objects.difference(before.tree, files.tree)
    changed = {path: entry for path, entry, _ in differences if entry is not None and not path.endswith(_PROSE)}
    return Files(before.objects, before.objects.replaced(EMPTY_TREE, changed))


def _is_read_near(files: Files, name: str, added: Mapping[str, frozenset[int]]) -> bool:
    """Return whether upstream's own lines of a patched file know a variable; this mostly saves searching the tree."""
    names = owners.pattern(owners.WORD)
    for path, lines in added.items():
        data = files.read(path) or b""
        if name.encode() not in data or path.endswith(_PROSE):
            continue
        for number, text in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
            if number not in lines and name in names.findall(text) and _declares(name, (path, number, text), upstream=True):
                return True
    return False


def known(files: Files) -> list[str]:
    """Return the variables in the owner's table, or, without it, in any of its sources."""
    table = _table(files)
    if table:
        return sorted(table)
    owner = next((owner for owner in projects.owners() if _is_of(files, owner)), None)
    if owner is None:
        return []
    done = grep(files, ["-h", "-o", "-w", "-E", "-e", f"{owner.prefix}[A-Z0-9_]+"], list(owner.sources))
    return sorted({line for line in done.splitlines() if line.startswith(owner.prefix)})


def find(files: Files, names: list[str]) -> dict[str, list[Occurrence]]:
    """Return the lines of a tree that have each name, without documentation files."""
    skipped = [f":(exclude)*{suffix}" for suffix in _PROSE]
    output = grep(files, ["-n", "-z", "-w", "-F", *(word for name in names for word in ("-e", name))], ["*", *skipped])
    wanted, word = set(names), owners.pattern(owners.WORD)
    found: dict[str, list[Occurrence]] = {}
    for line in output.split("\n"):
        head, _, rest = line.partition("\0")
        number, _, text = rest.partition("\0")
        path = head.partition(":")[2]
        for name in wanted.intersection(word.findall(text)):
            found.setdefault(name, []).append((path, int(number) if number.isdigit() else 0, text))
    return found


def grep(files: Files, what: list[str], where: list[str]) -> str:
    """Run `git grep` on some of a tree's files and return its output.

    Raises:
        GitError: the tree cannot be searched.

    """
    bring(files, where)
    env = {"GIT_DIR": str(files.objects.repository)}
    done = git.run(["grep", "-I", *what, files.tree, "--", *where], env=env, accept=(0, 1))
    return done.stdout.decode("utf-8", "surrogateescape")


def bring(files: Files, where: list[str]) -> None:
    """Fetch missing contents of a partial clone for some of a tree's files in one go; reading would fetch them one by one.

    Raises:
        GitError: they cannot be fetched.

    """
    if files.promised:
        env = {"GIT_DIR": str(files.objects.repository)}
        git.run(["diff", "--shortstat", "--no-renames", EMPTY_TREE, files.tree, "--", *where], env=env)


def _table(files: Files) -> frozenset[str]:
    """Return the variables that the tables of owners declare in this tree."""
    names: set[str] = set()
    for table in (owner.table for owner in projects.owners() if owner.table is not None):
        for line in files.text(table).splitlines():
            found = re.match(r"\s*[\"']?([A-Z][A-Z0-9_]*)[\"']?\s*:", line)
            if found:
                names.add(found[1])
    return frozenset(names)


def _is_aside(path: str) -> bool:
    return path.partition("/")[0] in ASIDE or path.startswith(".") or "/tests/" in path


def _declares(name: str, place: Occurrence, *, upstream: bool) -> bool:
    """Return whether a line reads or declares a variable, rather than only setting or mentioning it."""
    path, _, text = place
    code = text.split("#")[0] if path.endswith((".py", ".sh", ".cmake", ".yaml", ".yml")) else text.split("//")[0]
    code = text if text.lstrip().startswith("#define") else code
    if name not in code:
        return False
    if upstream and not _is_aside(path) and not _SETTING_FILES.search(path):
        return True
    word = re.escape(name)
    assigned = "" if _SETTING_FILES.search(path) else rf"|^\s*{word}\s*=[^=]"
    return (
        re.search(
            rf"(getenv|get_env|environ|env::var|GetEnv|\benv)\w*\s*(\.\s*(get|pop)\s*)?[\[(]\s*(name=|key=)?[\"']{word}[\"'](?!\s*\]\s*=[^=])"
            rf"|[\"']{word}[\"']\s+(not\s+)?in\b|^\s*[\"']{word}[\"']\s*:\s*lambda|#\s*define\s+{word}\b|\bARG\s+{word}\b"
            rf"|^(?!.*\b{word}=).*\$\{{*(ENV\{{)?{word}\b|\b(set|option|if)\s*\(\s*{word}\b|-D{word}\b{assigned}",
            code,
        )
        is not None
    )
