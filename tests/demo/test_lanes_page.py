# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/lanes.md, run as they are written on a small nginx."""

import re
from pathlib import Path

from stack.model import lanes

from ..store.factories import Remote
from .test_begin import ROOT, run


def written() -> list[str]:
    """The commands of the page's first part, without their comments."""
    first = (ROOT / "docs/lanes.md").read_text(encoding="utf-8").partition("\n## ")[0]
    return [re.sub(r"\s+#.*", "", line.strip()) for line in first.splitlines() if line.startswith("    stack ")]


def table() -> str:
    """The output of `stack lane list` as the page shows it."""
    page = (ROOT / "docs/lanes.md").read_text(encoding="utf-8")
    lines = [line[4:] for line in page[page.index("    lane   stands on") :].split("\n\n")[0].splitlines()]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def test_as_it_is_written(tmp_path: Path) -> None:
    nginx = Remote(tmp_path / "nginx")
    lines = [f"int limit_{number};\n" for number in range(1, 40)]
    nginx.commit({"src/serve.c": "".join(lines).encode()})
    nginx.tag("release-1.27.1")
    run(f"git clone -q {nginx.path} my-nginx && git -C my-nginx checkout -qb my-branch", tmp_path)
    run("sed -i '10s/.*/int ten;/' src/serve.c && git commit -qasm 'Rename the tenth limit'", tmp_path / "my-nginx")
    run("sed -i '30s/.*/int thirty;/' src/serve.c && git commit -qasm 'Rename the thirtieth limit'", tmp_path / "my-nginx")
    run("git checkout -q -b fixes release-1.27.1 2>/dev/null", nginx.path)
    (nginx.path / "src/more.c").write_text("int more;\n")
    run("git add src && git commit -qm 'More' && git tag release-1.27.5 && git checkout -q main 2>/dev/null", nginx.path)
    lines[29] = "int thirty;\n"
    nginx.commit({"src/serve.c": ("#include <x.h>\n" + "".join(lines)).encode()})
    nginx.tag("release-1.31.4")
    (tmp_path / "fork").mkdir()
    monkey = f"export STACK_CACHE={tmp_path}/cache XDG_STATE_HOME={tmp_path}/state\n"
    begin = f"stack init nginx --git {nginx.path} --tag release-1.27.1\nstack import ../my-nginx my-branch --no-triage\n"
    run(monkey + begin, tmp_path / "fork")
    commands = written()
    assert len(commands) == 7
    printed = {command: run(monkey + command, tmp_path / "fork") for command in commands}
    assert printed["stack lane list"] == table()
    assert "own version of the lane" in printed[commands[3]]
    assert printed[commands[4]].count("in order: ") == 2
    assert (tmp_path / "nginx-1.27/src/more.c").exists()
    stands = {lane: one.pins.get("nginx").tag for lane, one in lanes.carried(tmp_path / "fork").items()}
    assert stands == {None: "release-1.31.4", "1.27": "release-1.27.5"}
