# SPDX-License-Identifier: Apache-2.0
"""Run a program's group of commands: every error that a user can cause becomes one line and exit code 2."""

import gc
import os
import sys

import click

from stack.base.errors import SeveralErrors, StackError
from stack.cli import documents
from stack.cli.output import outlive_readers
from stack.cli.rendering import called, help_text, settings
from stack.cli.sentences import tell
from stack.cli.signals import interrupting


def run(group: click.Group, *, interrupted: str, complete_var: str | None = None) -> None:
    """Run the program's command line, and end the process with its exit code.

    Args:
        group: All commands of the program.
        interrupted: What an interrupted command leaves, and what to do then.
        complete_var: The variable with which a shell asks for completions. Default: the one that click makes of the program's name.

    """
    outlive_readers()
    help_text.use()
    settings.reset()
    documents.reset()
    with interrupting() as interrupts:
        try:
            code = _run(group, complete_var)
        except (click.Abort, KeyboardInterrupt):
            code = _fail(group, StackError("interrupted", interrupted), interrupts.exit_code)
        if settings.current().log is not None:
            from stack.cli.rendering import log_file  # noqa: PLC0415

            log_file.close(code)
        gc.freeze()  # Python collects garbage once more as it ends, which takes a hundredth of a second and frees nothing in time.
        sys.exit(code)


def _run(group: click.Group, complete_var: str | None) -> int:
    try:
        # Without standalone mode, click returns the exit code of a verb.
        return group(standalone_mode=False, prog_name=called.name(), complete_var=complete_var) or 0
    except StackError as error:
        return _fail(group, error)
    except click.Abort:
        raise
    except click.ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # since click 8.2
            error.show()
            return 2
        from stack.cli import usage  # noqa: PLC0415

        return _fail(group, usage.worded(error))
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _fail(group, StackError(f"{place}{error.strerror or error}", "check disk space and rights, then run it again"))
    except Exception as error:
        if os.environ.get("STACK_DEBUG"):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        return _fail(group, StackError(f"this is a defect, please report it ({reason})", "STACK_DEBUG=1 shows where"))


def _fail(group: click.Group, error: StackError, code: int = 2) -> int:
    """Print an error on stderr, with `--json` also as a document on stdout; return the exit code."""
    for each in error.errors if isinstance(error, SeveralErrors) else ():
        tell(str(each))
    tell(str(error))
    words = sys.argv[1:]
    if documents.are_wanted(words):
        documents.show_error(error, code, documents.verb(group, words))
    return code
