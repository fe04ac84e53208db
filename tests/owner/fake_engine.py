#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""In place of docker: keeps images and containers as files of FAKE_ENGINE, and runs a container as processes of this machine.

It answers the commands that the owner's verbs use, in docker's words. `images.json` has the images of a registry by name, with digest
and id; what was pulled is in `pulled/`. FAKE_FULL makes calls that write fail as a full disk does. Every call is written to `calls`.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(os.environ["FAKE_ENGINE"])
START = 'test -e "$1" && echo $$ > "$2.part" && mv "$2.part" "$2" && shift 2 && exec "$@"'
SERVER = Path(__file__).parents[1] / "serving/front_end.py"


def fail(message: str) -> None:
    print(message, file=sys.stderr)
    sys.exit(1)


def registry() -> dict[str, dict[str, str]]:
    return json.loads((HERE / "images.json").read_text())


def image(name: str) -> dict[str, str] | None:
    """An image that was pulled, by its name with a tag or a digest, its tag here, or its id."""
    for file in sorted((HERE / "pulled").glob("*.json")):
        held = json.loads(file.read_text())
        if name in (held["id"], *held["names"]):
            return held
    return None


def put(file: Path, content: object) -> None:
    part = file.with_name(f".{file.name}.{os.getpid()}")
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_text(json.dumps(content))
    part.replace(file)


def pull(name: str) -> None:
    found = None
    for tag, one in registry().items():
        pinned = f"{tag.rpartition(':')[0]}@{one['digest']}"
        if name in (tag, pinned):
            found = one | {"names": [tag, pinned]} if name == tag else one | {"names": [pinned]}
    if found is None:
        fail(f"Error response from daemon: manifest for {name} not found: manifest unknown")
        return
    for layer in range(3):
        print(f"{layer}: Pulling fs layer", flush=True)
    for layer in range(3):
        time.sleep(0.01)
        print(f"{layer}: Pull complete", flush=True)
    file = HERE / "pulled" / f"{found['id'][7:]}.json"
    before = json.loads(file.read_text())["names"] if file.exists() else []
    for other in (HERE / "pulled").glob("*.json"):  # a tag moves
        held = json.loads(other.read_text())
        if other != file and {*held["names"]} & {*found["names"]}:
            put(other, held | {"names": [one for one in held["names"] if one not in found["names"]]})
    put(file, found | {"names": sorted({*before, *found["names"]})})


def tag(source: str, name: str) -> None:
    held = image(source)
    if held is None:
        fail(f"Error response from daemon: No such image: {source}")
        return
    put(HERE / "pulled" / f"{held['id'][7:]}.json", held | {"names": sorted({*held["names"], name})})


def save(name: str) -> None:
    held = image(name)
    if held is None:
        fail(f"Error response from daemon: No such image: {name}")
    json.dump(held, sys.stdout)


def load() -> None:
    held = json.load(sys.stdin)
    put(HERE / "pulled" / f"{held['id'][7:]}.json", held | {"names": []})


def run(words: list[str]) -> None:
    options = []
    while words[0].startswith("--"):
        options.append(words.pop(0))
    source, *command = words
    name = next(one for one in options if one.startswith("--name=")).partition("=")[2]
    file = HERE / "containers" / f"{name}.json"
    held = image(source)
    if held is None:
        fail(f"docker: Error response from daemon: No such image: {source}")
        return
    if file.exists():
        fail(f'docker: Error response from daemon: Conflict. The container name "/{name}" is already in use')
    given = [one.partition("=")[2] for one in options if one.startswith("--env=")]
    variables = {
        key: value if equals else os.environ.get(key, "") for key, equals, value in (one.partition("=") for one in given)
    }
    labels = dict(one.split("=", 2)[1:] for one in options if one.startswith("--label="))
    mounted = next(one for one in options if one.startswith("--volume=/")).removeprefix("--volume=").split(":")
    command = [one.replace(mounted[1], mounted[0], 1) if one.startswith(mounted[1]) else one for one in command]
    pid_of(name).unlink(missing_ok=True)
    put(file, {"image": held["id"], "labels": labels, "env": variables})
    volume = next(one for one in options if one.startswith("--volume=") and not one.startswith("--volume=/"))
    (HERE / "volumes").mkdir(exist_ok=True)
    (HERE / "volumes" / volume.removeprefix("--volume=").partition(":")[0]).touch()
    guard = (HERE / "guard").read_text().split() if (HERE / "guard").exists() else []
    guard = guard if "STACK_KEEP_FREE" in variables else []
    if guard:  # as the image's entry point does
        guard = [sys.executable, *guard, variables["STACK_KEEP_FREE"]]
    with (HERE / f"{name}.log").open("wb") as log:
        subprocess.Popen(
            # The server itself says which process it is: this one may be killed first.
            [
                "/bin/sh",
                "-c",
                START,
                "start",
                str(file),
                str(pid_of(name)),
                *guard,
                sys.executable,
                "-S",
                str(SERVER),
                *command[1:],
            ],
            env={**os.environ, **variables, "HOW": held.get("how", ""), "SAYS": held.get("says", "cpu-fp32")},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    while not pid_of(name).exists():
        time.sleep(0.005)
    print("0" * 64)


def container(name: str) -> dict[str, object] | None:
    file = HERE / "containers" / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else None


def pid_of(name: str) -> Path:
    return HERE / "containers" / f"{name}.pid"


def runs(name: str) -> bool:
    try:
        pid = int(pid_of(name).read_text())
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, ValueError):
        return False


def stop(name: str) -> None:
    if container(name) is None:
        fail(f"Error response from daemon: No such container: {name}")
    if runs(name) and (HERE / "guard").exists():  # its server has a group of its own, which no container ends here
        os.killpg(int(pid_of(name).read_text()), signal.SIGTERM)
    elif runs(name):
        os.killpg(int(pid_of(name).read_text()), signal.SIGKILL)
        while runs(name):
            time.sleep(0.01)


def inspect(kind: str, name: str) -> None:
    if kind == "image":
        held = image(name)
        if held is None:
            fail(f"Error response from daemon: No such image: {name}")
            return
        config = {"Labels": {} if held.get("how") == "old" else {"stack.keep-free": "STACK_KEEP_FREE"}}
        known = {"Created": held.get("created", "2026-11-20T10:00:00Z"), "Config": config}
        print(json.dumps([{"Id": held["id"], "RepoDigests": [one for one in held["names"] if "@" in one], **known}]))
        return
    found = container(name)
    if found is None:
        fail(f"Error response from daemon: No such container: {name}")
        return
    alive = runs(name)
    state = {"Running": alive, "Status": "running" if alive else "exited", "ExitCode": 0 if alive else 1}
    env = [f"{key}={value}" for key, value in dict(found["env"]).items()]  # type: ignore[call-overload]
    config = {"Labels": found["labels"], "Env": env}
    print(json.dumps([{"Id": "0" * 64, "State": state, "RestartCount": 0, "Image": found["image"], "Config": config}]))


def volumes(words: list[str]) -> None:
    """Volumes are empty files; a file beside them has their label."""
    verb, *more = words
    (HERE / "volumes").mkdir(exist_ok=True)
    file = HERE / "volumes" / more[-1]
    if verb == "ls":
        label = more[-1].rpartition("label=")[2]
        for one in sorted((HERE / "volumes").glob("*.label")):
            if one.read_text() == label:
                print(one.stem)
    elif verb == "create":
        file.touch()
        file.with_name(f"{file.name}.label").write_text(more[0].removeprefix("--label="))
    elif not file.exists():
        fail(f"Error response from daemon: get {more[-1]}: no such volume")
    elif verb == "inspect":
        print(json.dumps([{"Name": more[-1]}]))
    else:
        for one in (file, file.with_name(f"{file.name}.label")):
            one.unlink(missing_ok=True)


def tags(words: list[str]) -> None:
    """Print the names with tags that images of a repository have here."""
    repository = words[-1].rpartition("reference=")[2]
    for file in sorted((HERE / "pulled").glob("*.json")):
        for name in json.loads(file.read_text())["names"]:
            if name.startswith(f"{repository}:"):
                print(name)


def untag(name: str) -> None:
    """Remove a name of an image, and the image with its last one."""
    held = image(name)
    if held is None:
        fail(f"Error response from daemon: No such image: {name}")
        return
    file = HERE / "pulled" / f"{held['id'][7:]}.json"
    put(file, held | {"names": [one for one in held["names"] if one != name]})
    if held["names"] == [name]:
        file.unlink()


def logs(words: list[str]) -> None:
    name = words[-1]
    if container(name) is None:
        fail(f"Error response from daemon: No such container: {name}")
    with (HERE / f"{name}.log").open("rb") as log:
        while True:
            piece = log.read(2**16)
            sys.stdout.buffer.write(piece)
            sys.stdout.flush()
            if not piece and ("--follow" not in words or not runs(name)):
                return
            time.sleep(0.02)


WRITES = ("pull", "run", "tag", "load")


def is_full() -> bool:
    """Whether this call finds no room: FAKE_FULL is `all`, or the number of the call that writes."""
    full = os.environ.get("FAKE_FULL", "")
    writes = [line for line in (HERE / "calls").read_text().splitlines() if json.loads(line)[0] in WRITES]
    return full == "all" or full == str(len(writes))


def main() -> None:
    verb, *words = sys.argv[1:]
    with (HERE / "calls").open("a") as calls:
        calls.write(json.dumps(sys.argv[1:]) + "\n")
    if verb in WRITES and is_full():
        fail(f"Error response from daemon: write {HERE}: no space left on device")
    if verb == "version":
        print("Client: 27")
    elif verb == "info":
        runtimes = {"nvidia": {"path": "nvidia-container-runtime"}, "runc": {"path": "runc"}}
        json.dump({"ServerVersion": "27", "Runtimes": runtimes, "DockerRootDir": str(HERE), "ServerErrors": None}, sys.stdout)
    elif verb == "ps":
        print("[]")
    elif verb == "volume":
        volumes(words)
    elif verb == "image" and words[0] == "ls":
        tags(words)
    elif verb == "rmi":
        untag(words[-1])
    elif verb in ("container", "image"):
        inspect(verb, words[-1])
    elif verb == "ps":
        print("[]")
    elif verb == "save":
        save(words[-1])
    elif verb == "load":
        load()
    elif verb == "rm":
        stop(words[-1])
        (HERE / "containers" / f"{words[-1]}.json").unlink(missing_ok=True)
    else:
        {"pull": lambda: pull(words[-1]), "tag": lambda: tag(*words), "run": lambda: run(words)}.get(
            verb,
            {"stop": lambda: stop(words[-1]), "logs": lambda: logs(words)}.get(verb, lambda: fail(f"unknown command {verb}")),
        )()


main()
