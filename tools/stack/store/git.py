# SPDX-License-Identifier: Apache-2.0
"""Run git; no other module starts it.

Git runs without the user's configuration, so that the same input gives the same bytes everywhere. Settings for reaching
servers (proxies, certificates, credentials, rewritten addresses) still apply: a store without file contents may fetch some at
any moment, even during a merge. `user_config=True` keeps the whole configuration.
"""

import fcntl
import functools
import os
import re
import resource
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO

from stack.base.errors import StackError

MINIMUM_VERSION = (2, 38)
"""The first version with `git merge-tree --write-tree`."""

_PIPE_BUFFER = 1 << 20
"""Bytes; the largest pipe that Linux allows an unprivileged user."""

_MEMORY = 2**30
"""Bytes of memory that git may use in an untrusted repository; mapped pack files do not count."""

HERE_ONLY = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
"""Variables that keep git from fetching an object that a partial clone lacks. Before git 2.39.4 only the second one works."""

_here_only: ContextVar[bool] = ContextVar("_here_only", default=False)

_ISOLATED = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
    "TZ": "UTC",
}


class GitError(StackError):
    """Raised when a git command fails; `stderr` holds its whole output, the message the decisive line."""

    def __init__(self, command: Sequence[str], returncode: int, stderr: str) -> None:
        lines = [line for line in stderr.splitlines() if line.strip() and not line.startswith("hint:")]
        message = next((line for line in lines if line.startswith(("fatal:", "error:"))), lines[-1] if lines else "no message")
        full = "No space left on device" in stderr
        how = f"was stopped by {signal.Signals(-returncode).name}" if returncode < 0 else f"failed ({returncode})"
        super().__init__(
            f"git {_verb(command)} {how}: {message}",
            "free some disk space and run the command again" if full else "",
        )
        self.returncode = returncode
        self.stderr = stderr


class Unanswered(StackError):
    """Raised when git was ended because it printed too much or took too long."""


def _verb(command: Sequence[str]) -> str:
    """Return the subcommand, which may follow `-c name=value`."""
    words = iter(command)
    for word in words:
        if word in ("-c", "-C"):
            next(words, None)
        elif not word.startswith("-"):
            return word
    return command[0]


def environment(*, user_config: bool = False, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for git: without the caller's repository, and with the user's configuration only on request."""
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith("GIT_") or key.startswith(_REACHING_VARIABLES)
    }
    if user_config:
        own = {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
        own |= {key: value for key, value in os.environ.items() if key.startswith("GIT_CONFIG")}
    else:
        own = _ISOLATED | dict(_reaching(tuple(sorted((key, os.environ[key]) for key in os.environ if _places_config(key)))))
    return kept | own | dict(extra or {}) | (HERE_ONLY if _here_only.get() else {})


@contextmanager
def here_only() -> Iterator[None]:
    """Run git within the block without any connection, also not to the remote of a partial clone.

    That remote's settings stand in the clone, and name programs to run.
    """
    token = _here_only.set(True)
    try:
        yield
    finally:
        _here_only.reset(token)


def with_settings(settings: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the variables that add settings to those for reaching servers; they stand in no command line."""
    first = int(environment().get("GIT_CONFIG_COUNT", "0"))
    variables = {"GIT_CONFIG_COUNT": str(first + len(settings))}
    for number, (key, value) in enumerate(settings, first):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


_REACHING_VARIABLES = ("GIT_SSL", "GIT_SSH", "GIT_PROXY", "GIT_HTTP", "GIT_ASKPASS", "GIT_ALLOW_PROTOCOL")
_REACHING_SETTINGS = re.compile(
    r"(http|credential|ssh|protocol|url)\..*|safe\.directory|core\.(sshcommand|gitproxy|askpass)", re.IGNORECASE
)


def _places_config(variable: str) -> bool:
    return variable in ("HOME", "XDG_CONFIG_HOME", "PATH") or variable.startswith("GIT_CONFIG")


@functools.lru_cache(maxsize=8)
def _reaching(places: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return the user's settings for reaching servers, as variables; `places` decides where git finds them (and keys the cache)."""
    del places
    try:
        done = subprocess.run(
            ["git", "config", "--list", "--null", "--includes"],
            env=environment(user_config=True, extra={"GIT_DIR": os.devnull}),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except FileNotFoundError:  # the caller's own run of git will report it
        return ()
    if done.returncode:  # an unreadable configuration breaks the user's git, not ours
        return ()
    settings = [item.partition("\n") for item in done.stdout.decode("utf-8", "surrogateescape").split("\0") if item]
    # A key without a value means true; an empty value would mean false.
    chosen = [(key, value if line else "true") for key, line, value in settings if _REACHING_SETTINGS.fullmatch(key)]
    variables = [("GIT_CONFIG_COUNT", str(len(chosen)))]
    for number, (key, value) in enumerate(chosen):
        variables += [(f"GIT_CONFIG_KEY_{number}", key), (f"GIT_CONFIG_VALUE_{number}", value)]
    return tuple(variables)


def _scratch() -> IO[bytes]:
    try:
        return tempfile.TemporaryFile()
    except OSError as failed:
        raise StackError(
            f"no temporary file can be made ({failed.strerror})", "free disk space, or name another folder in TMPDIR"
        ) from failed


def _not_started(cwd: Path | None) -> StackError:
    if cwd is not None and not cwd.is_dir():
        return StackError(f"{cwd} is not a folder", "check the path")
    return StackError("git is not installed", "install git 2.38 or newer")


def run(
    args: Sequence[str],
    *,
    cwd: Path | None = None,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    user_config: bool = False,
    accept: Sequence[int] = (0,),
    held: Sequence[int] = (),
) -> subprocess.CompletedProcess[bytes]:
    """Run `git ARGS` in `cwd` and return the finished process. It inherits the locks `held`, and keeps them if it outlives us.

    Raises:
        GitError: The exit code is not in `accept`.
        StackError: git is not on the PATH.

    """
    # Files instead of pipes for stdin and stderr: Python then needs no polling, which halves the cost of a small call.
    with _scratch() as given, _scratch() as errors:
        given.write(stdin or b"")
        given.seek(0)
        try:
            done = subprocess.run(
                ["git", *args],
                cwd=cwd,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment(user_config=user_config, extra=env),
                check=False,
                pass_fds=held,
            )
        except FileNotFoundError as missing:
            raise _not_started(cwd) from missing
        errors.seek(0)
        done.stderr = errors.read()
    if done.returncode not in accept:
        raise GitError(args, done.returncode, done.stderr.decode("utf-8", "replace"))
    return done


def bounded(
    args: Sequence[str],
    *,
    cwd: Path,
    most: int,
    seconds: float,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    accept: Sequence[int] = (0,),
) -> subprocess.CompletedProcess[bytes]:
    """Run `git ARGS` in an untrusted repository, and end it if it prints too much, takes too long, or needs too much memory.

    Args:
        args: The command; it may start no other program.
        cwd: The repository.
        most: Bytes of the longest output that is accepted.
        seconds: Time limit: reading a named pipe in the place of a file would never end.
        stdin: Bytes for git's standard input.
        env: Further variables.
        accept: Exit codes that are not errors.

    Raises:
        Unanswered: git was ended.
        GitError: The exit code is not in `accept`, for example because git had not enough memory.
        StackError: git is not on the PATH, or `cwd` is not a folder.

    """
    with _scratch() as given, _scratch() as errors:
        given.write(stdin)
        given.seek(0)
        try:
            process = subprocess.Popen(
                ["git", *args],
                cwd=cwd,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment(extra=env),
                bufsize=0,
            )
        except FileNotFoundError as missing:
            raise _not_started(cwd) from missing
        try:
            with suppress(AttributeError, OSError):  # Linux only
                # Before it prints anything, `git diff-tree` holds all differences of two trees.
                resource.prlimit(process.pid, resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
            output = _read_bounded(process, args, most, time.monotonic() + seconds, seconds)
        finally:
            process.kill()
            assert process.stdout is not None
            process.stdout.close()
            process.wait()
        errors.seek(0)
        message = errors.read(_PIPE_BUFFER)
    if process.returncode not in accept:
        raise GitError(args, process.returncode, message.decode("utf-8", "replace"))
    return subprocess.CompletedProcess(process.args, process.returncode, output, message)


def _read_bounded(process: subprocess.Popen[bytes], args: Sequence[str], most: int, deadline: float, seconds: float) -> bytes:
    """Read git's output to its end, and wait for git."""
    assert process.stdout is not None
    late = Unanswered(f"git {_verb(args)} gave no answer within {seconds:g} s")
    output = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise late
            part = os.read(process.stdout.fileno(), _PIPE_BUFFER)
            output += part
            if len(output) > most:
                raise Unanswered(f"git {_verb(args)} printed more than {most} bytes")
            if not part:
                break
    try:
        process.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise late from None
    return bytes(output)


@contextmanager
def feed(args: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None) -> Iterator[Callable[[bytes], object]]:
    """Run `git ARGS` in `cwd` while the block runs; the yielded function writes to git's standard input.

    Raises:
        GitError: git failed. If the block fails, git is killed and the block's own error is raised.
        StackError: git is not on the PATH.

    """
    with _scratch() as errors:
        try:
            process = subprocess.Popen(
                ["git", *args],
                cwd=cwd,
                env=environment(extra=env),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                bufsize=_PIPE_BUFFER,
            )
        except FileNotFoundError as missing:
            raise StackError("git is not installed", "install git 2.38 or newer") from missing
        assert process.stdin is not None
        with suppress(AttributeError, OSError):  # Linux only, and the system may limit the size
            # With the usual 64 kB pipe the two processes wait for each other: an import takes 3.7 s instead of 2.6 s.
            fcntl.fcntl(process.stdin, fcntl.F_SETPIPE_SZ, _PIPE_BUFFER)
        try:
            # A broken pipe means that git ended early; its exit status tells more.
            with suppress(BrokenPipeError):
                yield process.stdin.write
                process.stdin.flush()
        except BaseException:
            process.kill()
            raise
        finally:
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.wait()
        if process.returncode:
            errors.seek(0)
            raise GitError(args, process.returncode, errors.read().decode("utf-8", "replace"))


def text(args: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Return the output of `git ARGS` without trailing line ends."""
    return run(args, cwd=cwd, env=env).stdout.decode("utf-8", "surrogateescape").rstrip("\n")


def settings(repository: Path) -> dict[str, list[str]]:
    """Return a repository's own settings, each with all its values. git writes the names in lower case.

    Raises:
        GitError: It is not a repository, or its settings cannot be read.

    """
    found: dict[str, list[str]] = {}
    for setting in run(["config", "--local", "--list", "--null"], env={"GIT_DIR": str(repository)}).stdout.split(b"\0")[:-1]:
        name, _, value = setting.decode("utf-8", "surrogateescape").partition("\n")
        found.setdefault(name, []).append(value)
    return found


def add_settings(repository: Path, values: Mapping[str, str]) -> None:
    """Add settings to a repository that nobody else uses yet: in one step, where `git config` takes a process for each.

    Raises:
        OSError: The settings cannot be written.

    """
    lines = []
    for name, value in values.items():
        section, _, rest = name.partition(".")
        inner, dot, key = rest.rpartition(".")
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines.append(f'[{section} "{inner}"]\n' if dot else f"[{section}]\n")
        lines.append(f'\t{key} = "{escaped}"\n')
    with (repository / "config").open("a", encoding="utf-8", errors="surrogateescape") as file:
        file.write("".join(lines))


@functools.cache
def version() -> tuple[int, int]:
    """Return the major and minor version of the user's git."""
    match = re.search(r"(\d+)\.(\d+)", text(["--version"]))
    return (int(match[1]), int(match[2])) if match else (0, 0)


def require() -> None:
    """Refuse a git that cannot merge without a working tree.

    Raises:
        StackError: git is missing or older than 2.38.

    """
    if version() < MINIMUM_VERSION:
        have = ".".join(map(str, version()))
        raise StackError(f"git {have} is too old", "install git 2.38 or newer (`git merge-tree --write-tree` is needed)")
