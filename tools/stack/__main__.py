# SPDX-License-Identifier: Apache-2.0
"""The entry of the command line, which refuses a system that it cannot run on before anything is imported that fails there."""

import sys


def main() -> None:
    """Run the command line."""
    if sys.platform == "win32":
        print("stack: Windows is not supported: use WSL (`wsl --install`), where it is Linux", file=sys.stderr)
        sys.exit(2)
    from stack import cli  # noqa: PLC0415  (imports what Windows lacks)

    cli.main()


if __name__ == "__main__":
    main()
