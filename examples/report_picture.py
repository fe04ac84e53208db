# SPDX-License-Identifier: Apache-2.0
"""Make the picture of docs/report.md: a fork of FlashInfer 0.6.4, carried to 0.6.12, as Chromium draws its report.

    python examples/report_picture.py CLONE docs/report.png

CLONE is a clone of FlashInfer with its tags; it is only read. The fork has three kinds of patches: commits that upstream made later,
such commits with one line more, and comments beside code that upstream changed later. `stack` and `chromium` have to be on PATH.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image  # of matplotlib

BASE, ONTO = "v0.6.4", "v0.6.12"
TAKEN, EDITED = 14, 10
SIZE = (1180, 920)
COLOURS = 128
"""As many as keep letters smooth; the file has a third of the size then."""
NOBODY = ["-c", "user.name=Fork", "-c", "user.email=fork@localhost"]
BROWSER = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --hide-scrollbars"
)


def git(fork: Path, *args: str, given: bytes = b"") -> str:
    """Run git in the fork and return its output."""
    done = subprocess.run(["git", *NOBODY, *args], cwd=fork, input=given, capture_output=True, check=True)
    return done.stdout.decode("utf-8", "replace").strip()


def take(fork: Path) -> None:
    """Take upstream's later commits that apply; add a line to every third one."""
    commits = git(fork, "rev-list", "--reverse", "--no-merges", f"{BASE}..{ONTO}").splitlines()
    taken = 0
    for commit in commits[5::12]:
        patch = subprocess.run(
            ["git", "format-patch", "-1", "--stdout", commit], cwd=fork, capture_output=True, check=True
        ).stdout
        try:
            git(fork, "apply", "--index", "--check", given=patch)
        except subprocess.CalledProcessError:
            continue
        git(fork, "am", "--quiet", given=patch)
        file = git(fork, "show", "--name-only", "--format=").splitlines()[0]
        if taken % 3 == 2 and (fork / file).is_file():
            with (fork / file).open("a") as opened:
                opened.write("\n# The fork ends here.\n")
            git(fork, "commit", "--quiet", "--all", "--amend", "--no-edit")
        taken += 1
        if taken == TAKEN:
            return


def edit(fork: Path) -> None:
    """Write comments at, or some lines below, the first line that upstream changed later."""
    files = git(fork, "diff", "--name-only", "--diff-filter=M", BASE, ONTO, "--", "csrc", "include").splitlines()
    edited = 0
    for file in files[::7]:
        first = re.search(r"^@@ -(\d+)", git(fork, "diff", "-U0", BASE, ONTO, "--", file), re.MULTILINE)
        lines = (fork / file).read_text().split("\n")
        place = int(first[1]) - 1 + (0 if edited % 3 == 0 else 15) if first else len(lines)
        if not 2 < place < len(lines):
            continue
        lines[place] += "  // the fork relies on this"
        (fork / file).write_text("\n".join(lines))
        git(fork, "commit", "--quiet", "--all", "-m", f"Say what the fork relies on in {Path(file).name}")
        edited += 1
        if edited == EDITED:
            return


def main() -> None:
    """Make the fork, its report and the picture."""
    clone, picture = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        fork, page = place / "fork", place / "report.html"
        subprocess.run(["git", "clone", "--quiet", "--shared", "--no-checkout", clone, fork], check=True)
        git(fork, "checkout", "--quiet", "-b", "fork", BASE)
        take(fork)
        edit(fork)
        git(fork, "format-patch", "--full-index", "--output-directory", str(place / "patches"), BASE)
        asked = ["triage", "--repo", fork, "--base", BASE, "--onto", ONTO, "--through", "auto", "--report", page]
        done = subprocess.run(["stack", *asked, *sorted((place / "patches").iterdir())], check=False)
        if done.returncode not in (0, 1):
            sys.exit(done.returncode)
        # The list of what needs a person stands above the table, and fills the picture.
        page.write_text(re.sub(r'<section id="needs">.*?</section>', "", page.read_text(), flags=re.DOTALL))
        width, height = SIZE
        drawn = [f"--user-data-dir={place / 'profile'}", f"--window-size={width},{height}", f"--screenshot={picture}"]
        subprocess.run(["chromium", *BROWSER.split(), *drawn, page.as_uri()], check=True, stderr=subprocess.DEVNULL)
        with Image.open(picture) as opened:
            drawing = opened.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        drawing.save(picture, optimize=True)


if __name__ == "__main__":
    main()
