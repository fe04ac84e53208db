# SPDX-License-Identifier: Apache-2.0
"""The JSON Schemas of the files of a stack name the keys that their readers take, and refuse nothing that these accept."""

import ast
import copy
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tomlkit

from stack.base.errors import StackError
from stack.cli import schemas
from stack.deploy import derived_recipes, recipe_parts, recipes
from stack.doctor.knowledge import load
from stack.doctor.knowledge.rule import Origin
from stack.model import lint_policy, pins, proof_command, series, stack, verdict
from stack.model.document import Table
from stack.validation import gates

from .json_documents import validator

ROOT = Path(__file__).parents[1]
READERS: Mapping[str, tuple[ModuleType, ...]] = {
    "pins.toml": (pins,),
    "stack.toml": (stack, lint_policy),
    "series.toml": (series, proof_command),
    "recipe.toml": (recipes, recipe_parts, derived_recipes),
    "gates.toml": (gates,),
    "verdict.json": (verdict,),
    "rules.toml": (load,),
}
"""The modules that read each file."""
COMMIT, SHA = "0123456789abcdef0123456789abcdef01234567", "0123456789abcdef" * 4
PIN = f"""
git = "https://host/up"
commit = "{COMMIT}"
tag = "v1.0"
archive = {{ package = "up", version = "1.0", sha256 = "{SHA}" }}
tree = "{COMMIT}"
subtrees = {{ "a/b" = "{COMMIT}" }}
source = "archive"
tags = "v*"
"""
VENDORED = f"""git = "https://host/low"\ncommit = "{COMMIT}"\nwithin = {{ upstream = "up", path = "3rdparty/low" }}\n"""
BASE = f'image = "host/name"\ntag = "13.0"\ndigest = "sha256:{SHA}"\n'
WHOLE = {
    "pins.toml": (
        f"[up]{PIN}[low]\n{VENDORED}[base]\n{BASE}[lane.old.up]{PIN}[lane.old.low]\n{VENDORED}[lane.old.base]\n{BASE}"
    ),
    "stack.toml": """
series = ["one"]
label = "mine"
plugins = ["vllm"]
lint = { signed-off-by = "required", subject-length = 72, proof = "optional" }
""",
    "series.toml": """
title = "One"
why = "It is needed."
state = "declined"
needs = ["zero"]
pull = "https://host/1"
reason = "Too long."
drop_when = "Upstream has it."
acts_on = ["cpu"]
proves = [
    "proofs/test_one.py",
    { run = "true", upstream = "up", patches = ["up/a.patch"], paths = ["data"], requirements = "r.txt", python = "3.12", seconds = 9 },
]
[[landed]]
file = "up/b.patch"
release = "v2"
before = "v1"
[[patch]]
upstream = "up"
file = "up/a.patch"
from = "sources/a"
pull = "https://host/2"
tags = ["Kernel"]
[[patch.compiles]]
unit = "module/a.cu"
instantiation = "<float>"
makes = "make()"
sass = ["LDG.128"]
[[patch]]
upstream = "up"
file = "up/c.patch"
pull = ["https://host/3"]
""",
    "recipe.toml": """
title = "A model"
base = "gpt-oss-120b-h200"
without = ["FLASHINFER_CUDA_ARCH_LIST"]
model = "some/model"
revision = "0123456789012345678901234567890123456789"
arguments = ["--port", "${PORT}"]
environment = { A = "b" }
flags = ["avx"]
log = ["a line"]
proven = "validation/verdicts/one.json"
[variables]
PORT = "where it listens"
[bar]
measure = "largest"
at = 0.5
blind = ["a fault"]
[hardware]
name = "h200"
nodes = 1
memory = 80.5
[backends]
moe = "a"
decode = "b"
linear = "c"
attention = "d"
kv = "e"
graphs = true
[[speed]]
context = 512
requests = 2
decode = 9.5
by = "me"
source = "measured"
""",
    "gates.toml": """
[cpu]
has = ["cpu"]
cases = [{ names = "kernels/*", least = 1, needs = "cpu", weights = ["real"], missed = true }]
""",
    "rules.toml": """
[[rule]]
id = "fan-loud"
title = "the fan is loud"
means = "dust"
fix = ["clean it", "close the door"]
evidence = ["o/r#1"]
matches = ["fan is at 9000 rpm"]
misses = ["fan is at rest"]
severity = "wrong"
sure = "certain"
follows = false
general = false
before_start = false
lines = ["fan begins"]
any = ["fan is at <n> rpm"]
dmesg = ["fan: loud"]
unless = ["fan is off"]
window = 9
told = true
since = "0.30"
until = "0.32.0"
hardware = ["spark"]
[rule.when]
model = "*gpt-oss*"
quantization = "mxfp4"
moe = "MARLIN"
attention = "TRITON_ATTN"
ready = true
ranks = 2
[[rule]]
id = "shm-small"
title = "little"
means = "it"
fix = "more"
evidence = ["a file.py"]
matches = ["a"]
misses = ["b"]
facts = ["shm.size < 1G"]
[[rule]]
id = "eager"
title = "slow"
means = "it"
fix = "none"
evidence = ["o/r#2"]
matches = ["a"]
misses = ["b"]
[rule.settings]
flags = ["--enforce-eager"]
variables = ["MAX_JOBS > 9"]
absent = ["--api-key"]
several_nodes = true
rank = "first"
replace = ["--moe-backend marlin"]
remove = ["--enforce-eager"]
append = ["--headless"]
""",
}
"""A file of each kind that has every key."""


def read(name: str, content: Mapping[str, Any], place: Path) -> None:
    """Read a file's content as the commands do."""
    table = Table(content, file=place)
    if name == "pins.toml":
        pins.read(table, place)
    elif name == "series.toml":
        series.load(place, table)
    elif name == "gates.toml":
        for key in table:
            gates._gate(key, table.table(key))
    elif name == "rules.toml":
        tuple(load.of(table, Origin.USER, place))
    else:
        READ[name](table, place)


def read_stack(table: Table, place: Path) -> None:
    (place / "stacks/one").mkdir(parents=True, exist_ok=True)
    (place / "stacks/one/series.toml").touch()

    class View(stack._View):
        def table(self, path: str) -> Table:
            return table

    stack._settings(View(place, None))


CHECKPOINTS, MACHINES = recipes.checkpoints.known(), recipes.hardware.known()


def read_recipe(table: Table, place: Path) -> None:
    file = place / "recipe.toml"
    file.write_text(tomlkit.dumps({key: table._values[key] for key in table}))
    with pytest.MonkeyPatch.context() as patched:  # these two files are the same for every recipe
        patched.setattr(recipes.checkpoints, "known", lambda: CHECKPOINTS)
        patched.setattr(recipes.hardware, "known", lambda: MACHINES)
        recipes.read(file)


READ: Mapping[str, Callable[[Table, Path], None]] = {"stack.toml": read_stack, "recipe.toml": read_recipe}


def accepts(name: str, content: Mapping[str, Any], place: Path) -> str:
    """Why the reader refuses a content; empty if it does not."""
    try:
        read(name, content, place)
    except StackError as refused:
        return str(refused)
    return ""


_ASKS = {
    "text",
    "optional_text",
    "given",
    "is_text",
    "number",
    "numbers",
    "whole",
    "flag",
    "texts",
    "texts_and_tables",
    "table",
}
_ASKS |= {"optional_table", "tables"}


def keys_in_code(module: ModuleType) -> set[str]:
    """The keys that a module asks a table for, in its own calls or by a function of its own that takes table and key."""
    tree = ast.parse(Path(str(module.__file__)).read_text())
    found = set()
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        if isinstance(call.func, ast.Attribute) and call.func.attr in _ASKS:
            asked = call.args[:1]
        elif isinstance(call.func, ast.Name) and hasattr(module, call.func.id) and call.func.id.startswith("_"):
            asked = call.args[1:2]
        else:
            continue
        for each in asked:
            value = getattr(module, each.id, None) if isinstance(each, ast.Name) else getattr(each, "value", None)
            found |= {value} if isinstance(value, str) and re.fullmatch(r"[a-z][a-z0-9_-]*", value) else set()
    return found


def keys_in_schema(value: Any) -> set[str]:
    if isinstance(value, Mapping):
        own = {*value["properties"]} if isinstance(value.get("properties"), Mapping) else set()
        return own.union(*map(keys_in_schema, value.values()))
    return set().union(*map(keys_in_schema, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("name", READERS)
def test_the_schema_has_the_keys_of_the_reader_and_no_others(name: str) -> None:
    in_code = set().union(*map(keys_in_code, READERS[name]))
    assert in_code == keys_in_schema(schemas.whole(name))


def test_each_schema_of_a_file_has_a_reader() -> None:
    assert {*READERS} == {*schemas.files()}


def refused(name: str, content: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator(name).iter_errors(content)]


def places(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if place:
        yield place
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield from places(each, (*place, key))


def changed(content: Any, place: tuple[str | int, ...], *value: object) -> Any:
    """A copy with another value at a place, or without that place."""
    copied = copy.deepcopy(content)
    holder = copied
    for key in place[:-1]:
        holder = holder[key]
    if value:
        holder[place[-1]] = value[0]
    else:
        del holder[place[-1]]
    return copied


LISTED = ("model", "name")
"""Keys with names of other files as their values."""
WRONG: tuple[object, ...] = (True, 1.5, "", "words and more", [1], ["twice", "twice"], {"none": 1})


@pytest.mark.parametrize("name", WHOLE)
def test_the_schema_refuses_what_the_reader_refuses_for_its_form(name: str, tmp_path: Path) -> None:
    """Each value of a whole file is left out, replaced by one of another type, and given a key that is unknown."""
    whole = tomllib.loads(WHOLE[name])
    assert (refused(name, whole), accepts(name, whole, tmp_path)) == ([], "")
    named = {key for place in places(whole) for key in place if isinstance(key, str)}
    assert keys_in_schema(schemas.whole(name)) <= named, "WHOLE has every key"
    wrong = []
    for place in places(whole):
        values = [(), *((value,) for value in WRONG)]
        for value in values:
            if place[-1] in LISTED and isinstance(value[:1] and value[0], str):
                continue
            content = changed(whole, place, *value)
            by_schema, by_reader = refused(name, content), accepts(name, content, tmp_path)
            form = re.search(r"it has to be|is missing: add it$|is an unknown key", by_reader)
            if (bool(by_schema) and not by_reader) or (form and not by_schema):
                wrong.append((place, value, by_schema, by_reader))
    assert wrong == []


def test_files_of_this_repository_are_as_the_schemas_say() -> None:
    found = {
        "pins.toml": [ROOT / "pins.toml", *ROOT.glob("examples/*/pins.toml")],
        "stack.toml": [*ROOT.glob("**/stacks/stack.toml")],
        "series.toml": [*ROOT.glob("stacks/*/series.toml"), *ROOT.glob("examples/*/stacks/*/series.toml")],
        "recipe.toml": [*(ROOT / "validation/recipes").glob("*.toml")],
        "gates.toml": [ROOT / "validation/gates.toml"],
        "rules.toml": [*load.FOLDER.glob("*.toml")],
    }
    for name, files in found.items():
        assert files, name
        for file in files:
            assert refused(name, tomllib.loads(file.read_text())) == [], file
    verdicts = [*(ROOT / "validation/verdicts").rglob("*.json")]
    assert verdicts
    for file in verdicts:
        content = json.loads(file.read_text())
        if "schema" in content and "cases" in content:
            assert refused("verdict.json", content) == [], file
