# SPDX-License-Identifier: Apache-2.0
"""`stack serve`: start a recipe's server, and report which kernels really run."""

import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import BinaryIO

import click

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.cli import sentences, serve_compare, serve_memory, starting
from stack.cli.common import interpreter, json_option, print_json, progress
from stack.cli.completing import complete_recipes
from stack.cli.seconds import Seconds
from stack.deploy import recipes, vllm_log
from stack.deploy.vllm_log import Mismatch
from stack.serving import demands, summary
from stack.serving.command import HEAD, pairs
from stack.serving.command import command as of
from stack.serving.start import Start, Up, started
from stack.validation import machine
from stack.validation.python_env import Process
from stack.validation.serve.server import NotServing


@click.command("serve")
@click.argument("recipe", required=False, shell_complete=complete_recipes)
@click.argument("extra", nargs=-1, type=click.UNPROCESSED, metavar="[-- FLAGS...]")
@click.option("--dry-run", is_flag=True, help="Print the command; run nothing.")
@click.option(
    "--model",
    type=click.Path(path_type=Path, file_okay=False),
    help="The checkpoint's folder. Default: the published one, which the server downloads; tiny recipes have their own.",
)
@click.option("--set", "variables", multiple=True, metavar="NAME=VALUE", help="A variable of the recipe; repeatable.")
@click.option(
    "--image",
    metavar="REF|oci:DIR",
    help="Serve in a container of this image, with --model and this machine's GPUs, by buildah or podman. "
    "With docker: `spark-stack up`.",
)
@click.option(
    "--python",
    type=click.Path(path_type=Path),
    callback=interpreter,
    help="An interpreter with vLLM. Default: the vllm on PATH; for a tiny recipe this stack's own wheel.",
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; one beyond this machine needs VLLM_API_KEY."
)
@click.option("--port", type=click.IntRange(1, 65535), default=8000, show_default=True, help="Port to listen on.")
@click.option("--allow-fallback", is_flag=True, help="Serve even with other backends or GPUs than the recipe expects.")
@click.option(
    "--server-log",
    "log",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the server's log to this file, not to stderr.",
)
@click.option("--timeout", type=Seconds(), default=3600.0, show_default=True, help="Seconds to wait for the first answer.")
@serve_memory.options
@serve_compare.options
@json_option
@click.pass_context
def command(
    context: click.Context,
    recipe: str | None,
    extra: tuple[str, ...],
    dry_run: bool,
    model: Path | None,
    variables: tuple[str, ...],
    image: str | None,
    python: Path | None,
    host: str,
    port: int,
    allow_fallback: bool,
    log: Path | None,
    timeout: float,
    keep_free: float | None,
    wait_for_memory: float | None,
    compare: tuple[str, str] | None,
    rounds: int,
    runs: int,
    prompts: tuple[int, ...],
    answers: tuple[int, ...],
    as_json: bool,
) -> None:
    """Serve a model as RECIPE describes, and report which kernels really run.

    The command waits for the server's first answer, reads the chosen backends from its log, and reports them in one line. If they
    are not those that the recipe expects, it stops the server and shows the log's reasons: exit code 1, unless --allow-fallback. It
    then runs as long as the server; Ctrl-C ends both. Flags behind -- go to `vllm serve`.

    With --compare A B it serves two recipes of one model in turn, A B B A …, measures both with llama-benchy, ends them, and says which is
    faster. If the 95 % interval of their ratio contains 1, no difference is shown.

    \b
    stack serve gpt-oss-120b-spark --dry-run      print the command
    stack serve gpt-oss-120b-spark --model DIR    serve your copy of the model
    stack serve cpu-mxfp4                         a tiny model, in 5 GB of memory
    stack serve --compare A B --model DIR         which of two recipes is faster
    """

    if compare is not None:
        extra = _of_compare(recipe, extra, refused={"--dry-run": dry_run, "--image": image, "--set": variables})
        names = serve_compare.CompareRequest(
            *(compare, model, python, host, port, extra, rounds, runs, prompts, answers, allow_fallback, timeout),
            *(keep_free, wait_for_memory),
        )
        with _out(log) as out:
            context.exit(serve_compare.run(context, names, out.keep, as_json=as_json))
    if recipe is None:
        raise click.UsageError("Missing argument 'RECIPE'.", ctx=context)
    if image is not None and python is not None:
        raise click.UsageError("--image has its own packages: leave --python out")
    chosen, values = recipes.load(recipe, context.obj.root_if_any()), pairs(variables)
    headless = "--headless" in extra or values.get(recipes.RANK, HEAD) != HEAD
    demands.demand_flags(extra)
    if model is not None:
        demands.demand_model(model)
    if not dry_run:
        here = machine.here()
        demands.demand_machine(chosen, here, fallback=allow_fallback)
    if not dry_run and not headless:
        demands.demand_key(host, os.environ, contained=image is not None)
        demands.demand_port(host, port)
    request = starting.ServerRequest(
        chosen,
        lambda folder: of(chosen, values, host=host, port=port, model_path=folder, extra=extra),
        model=model,
        image=image,
        python=python,
        dry=dry_run,
    )
    with contextlib.ExitStack() as held, contextlib.ExitStack() as shown:
        tell = shown.enter_context(progress())
        if not dry_run:
            serve_memory.demand([chosen], here, extra, wait_for_memory, tell)
        made = held.enter_context(starting.made(context.obj, request, tell))
        if dry_run:
            shown.close()
            _print_dry(made.process, made.before, as_json=as_json)
            return
        url = None if headless else demands.address(host, port)
        guard = serve_memory.guard(keep_free)
        start = Start(chosen, made.process, made.folder, url, os.environ.get(demands.KEY), timeout, guard)
        out = held.enter_context(_out(log))
        context.exit(_serve(start, out, tell, shown, fallback=allow_fallback, as_json=as_json))


def _of_compare(recipe: str | None, extra: tuple[str, ...], *, refused: Mapping[str, object]) -> tuple[str, ...]:
    """Return the extra flags of a comparison: without a recipe, click takes the first of them for one.

    Raises:
        UsageError: a recipe is named beside --compare, or an option that serves a single one.

    """
    for option in (name for name, given in refused.items() if given):
        raise click.UsageError(f"{option} is for one recipe: leave it out with --compare")
    if recipe is None:
        return extra
    if not recipe.startswith("-"):
        raise click.UsageError(f"--compare names both recipes: leave {recipe} out")
    return (recipe, *extra)


def _serve(start: Start, out: "_Out", tell: Progress, shown: contextlib.ExitStack, *, fallback: bool, as_json: bool) -> int:
    """Serve until the server ends or is stopped; return the exit code. `shown` holds the progress on the terminal."""

    with _ended_politely(), contextlib.ExitStack() as held:
        try:
            up = held.enter_context(started(start, out.take, tell))
        except NotServing as failed:
            shown.close()
            return _say_failed(failed, out, as_json=as_json)
        shown.close()
        if up.mismatches and not fallback:
            held.close()  # stop the server first, so that the report comes after its log
            _say_mismatches(up.mismatches)
            _say(up, as_json=as_json, serves=False)
            return 1
        try:
            _say_mismatches(up.mismatches)
            _say(up, as_json=as_json, serves=True)
            out.follow()
            code = up.wait()
        except KeyboardInterrupt:
            held.close()
            click.echo("the server was stopped as requested", err=True)
            return 0
        if start.guard is not None and start.guard.reason is not None:
            sentences.tell(start.guard.reason)
        elif code < 0:
            held.close()
            sentences.tell(f"signal {-code} killed the process that watches the server, so the server was stopped")
        else:
            sentences.tell(f"the server ended by itself with status {code}")
        return 1


class _Out:
    """Destination of the log: a file, else stderr (in a pipe from the start, on a terminal after the progress bar)."""

    def __init__(self, file: BinaryIO | None) -> None:
        self._file = file
        self._follows = not sys.stderr.isatty()

    @property
    def shown(self) -> bool:
        """Whether the user has seen the log so far, or has it in a file."""
        return self._follows or self._file is not None

    def follow(self) -> None:
        """Show the log from now on."""
        self._follows = True

    def keep(self, piece: bytes) -> None:
        """Write a piece of a server's log to the file, if there is one, and show nothing."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # a full disk must not end a comparison that takes hours
                self._file.write(piece)

    def take(self, piece: bytes) -> None:
        """Write a piece of the server's log."""
        if self._file is not None:
            try:
                self._file.write(piece)
                return
            except OSError as failed:
                self._file, self._follows = None, True
                sentences.tell(f"the log cannot be written any more ({failed.strerror}): it goes on here")
        if self._follows:
            sys.stderr.write(piece.decode("utf-8", "replace"))
            sys.stderr.flush()


@contextlib.contextmanager
def _out(file: Path | None) -> "Iterator[_Out]":
    if file is None:
        yield _Out(None)
        return
    try:
        opened = file.open("wb", buffering=0)
    except OSError as failed:
        raise StackError(f"{file} cannot be written ({failed.strerror})", "name another file with --server-log") from failed
    with opened:
        yield _Out(opened)


@contextlib.contextmanager
def _ended_politely() -> Iterator[None]:
    """Treat SIGTERM, which supervisors send, like Ctrl-C, so that the server ends before this process."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    # A shell's background job ignores SIGINT, and Python keeps that: set both handlers.
    before = {kind: signal.signal(kind, end) for kind in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def _say(up: Up, *, as_json: bool, serves: bool) -> None:

    if as_json:
        content = summary.as_json(up.reading, up.mismatches)
        print_json(
            {"serves": serves, "url": up.url, "model": up.model, "seconds": round(up.seconds, 1), "error": None, **content}
        )
    elif serves:
        click.echo(summary.line(up))
    sys.stdout.flush()


def _say_mismatches(mismatches: Sequence[Mismatch]) -> None:

    for each in mismatches:
        sentences.tell(summary.mismatch(each))


def _say_failed(failed: NotServing, out: "_Out", *, as_json: bool) -> int:

    reading = vllm_log.read(failed.log)
    first, *last = str(failed).splitlines()
    if not out.shown:
        for line in last:
            click.echo(line, err=True)
    sentences.tell(first)
    for refusal in reading.refused:
        sentences.tell(f"{refusal.part} {refusal.name} was refused: {refusal.why}")
    if as_json:
        nothing = {"serves": False, "url": None, "model": None, "seconds": None, "error": first}
        print_json({**nothing, **summary.as_json(reading, ())})
    return 1


def _print_dry(process: Process, before: Sequence[Sequence[str]], *, as_json: bool) -> None:

    line = summary.shell(process, os.environ)
    if as_json:
        words = {"before": [list(shown) for shown in before], "command": list(process.command)}
        print_json({**words, "environment": summary.own(process, os.environ), "line": line}, "serve-dry-run")
        return
    for shown in (*map(shlex.join, before), line):
        click.echo(shown)
