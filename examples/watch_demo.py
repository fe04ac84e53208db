# SPDX-License-Identifier: Apache-2.0
"""Show two nights of `stack watch` on a forge of this machine: `make demo-watch`, or with `FORGE=gitlab` or `FORGE=forgejo`.

The git server and the forge's API listen on the loopback interface. Every request and every answer is compared with a description
of that API. npm brings those of GitHub and Forgejo. Nothing of the user's home is touched but the cache.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from tests.forge import fake_github  # noqa: E402
from tests.forge.conftest import HUBS, KINDS, TOKEN, VARIABLES, contract_of  # noqa: E402
from tests.upstreaming import forge as git_server  # noqa: E402
from tests.watch.world import CONFLICT, FIXED, OWN, Branches, Maintainer, maintainer  # noqa: E402


def main() -> int:
    """Run both nights; return the exit code."""
    parser = argparse.ArgumentParser(description="Show two nights of `stack watch`.")
    parser.add_argument("--forge", choices=KINDS, default="github")
    kind = parser.parse_args().forge
    try:
        document = contract_of(kind)
    except pytest.skip.Exception as missing:
        print(f"{missing.msg}: install npm, or check its registry", file=sys.stderr)
        return 2
    with (
        tempfile.TemporaryDirectory(prefix="watch-demo-") as name,
        fake_github.serving(document, HUBS[kind]) as hub,
        git_server.serving(Path(name, "forge")) as server,
    ):
        home = Path(name, "home")
        home.mkdir()
        hub.tokens = {TOKEN: "me"}
        me = maintainer(Path(name), home, server, hub)
        hub.repositories[OWN] = fake_github.Repo(branches=Branches(me.mine))
        heading("Upstream has two new releases. v1.1 has one of our patches; v1.2 is in conflict with the other one.")
        me.release("v1.1", {"b.py": FIXED})
        me.release("v1.2", CONFLICT)
        me.ran()
        first = night(me, home, kind)
        [issue], [pull] = me.issues, hub.repositories[OWN].pulls
        heading(f"Issue #{issue.number}: {issue.title}")
        print(issue.body)
        what = "merge" if kind == "gitlab" else "pull"
        heading(f"Draft {what} request #{pull.number}: {pull.title}")
        print(pull.body)
        second = night(me, home, kind)
        heading(f"The first night made {len(first)} writes, the second one {len(second)}.")
        print(f"{len(me.issues)} issue, {len(hub.repositories[OWN].pulls)} {what} request")
        return 0 if first and not second and not hub.faults else 1


def night(me: Maintainer, home: Path, kind: str) -> list[str]:
    """Run a night as the workflow does, and return its writes."""
    me.forget()
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "GH_", "GITHUB_", "GITLAB_", "FORGEJO_"))
    }
    environment |= {"HOME": str(home), "PYTHONPATH": str(ROOT / "tools")}
    environment |= dict(zip(VARIABLES[kind], (me.hub.url, TOKEN), strict=True))
    heading(f"$ stack watch run --{kind}")
    command = [sys.executable, "-m", "stack", *me.args, "watch", "run", f"--{kind}"]
    subprocess.run(command, env=environment, check=False)
    return me.writes()


def heading(text: str) -> None:
    """Print a line that stands out."""
    print(f"\n== {text}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
