# SPDX-License-Identifier: Apache-2.0
"""The entries of the command lines, which refuse a system that they cannot run on before anything is imported that fails there."""

import sys


def main() -> None:
    """Run the command line of `stack`."""
    _refuse_windows("stack")
    from stack import cli  # noqa: PLC0415  (imports what Windows lacks)

    cli.main()


def owners_main() -> None:
    """Run the command line of `spark-stack`."""
    _refuse_windows("spark-stack")
    from stack.cli import owner  # noqa: PLC0415  (imports what Windows lacks)

    owner.main()


def _refuse_windows(program: str) -> None:
    if sys.platform == "win32":
        print(f"{program}: Windows is not supported: use WSL (`wsl --install`), where it is Linux", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
