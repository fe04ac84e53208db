# SPDX-License-Identifier: Apache-2.0
"""Tell a change of layout from a change of meaning: two texts are the same program if they parse to the same tree.

Blanks are never dropped: they are part of strings, and in Python, YAML and make they are syntax. A language without a rule here
has to be equal to the byte.
"""

import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import PurePosixPath

from stack.carry import reflow
from stack.carry.structure.hunks import Doubt
from stack.carry.structure.items import Source

PYTHON = {".py", ".pyi"}
CPP = {".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".inl"}

# A preprocessor directive ends with its line; everywhere else in C++ a line end is a blank like another.
_CPP_TOKEN = re.compile(
    rb"(?P<directive>^[ \t]*\#(?:[^\\\n]|\\.|\\\n)*)"
    rb'|(?P<exact>R"([^()\\\s]{0,16})\(.*?\)\3"|"(?:[^"\\\n]|\\.)*"|(?<![0-9a-fA-F])\'(?:[^\'\\\n]|\\.)*\')'
    rb"|(?P<comment>//[^\n]*|/\*.*?\*/)"
    rb"|(?P<word>[\w.]+|<<=|>>=|<=>|->\*|\.\.\.|::|->|\+\+|--|&&|\|\||<<|>>|[-+*/%&|^!=<>]=|\#\#|[^\s])",
    re.DOTALL | re.MULTILINE,
)


def same(path: str, one: bytes, other: bytes) -> bool:
    """Whether two versions of a file differ in layout only."""
    if one == other:
        return True
    if reflow.joined(one) != reflow.joined(other):
        return False  # cheap, and true of most pairs: a formatter changes blanks, quotes and commas only
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in PYTHON:
        return _same_python(one, other)
    return suffix in CPP and _cpp_tokens(one) == _cpp_tokens(other)


def _same_python(one: bytes, other: bytes) -> bool:
    try:
        trees = [ast.dump(Source(data).tree) for data in (one, other)]
        return trees[0] == trees[1] and _comments(one) == _comments(other)
    except (Doubt, RecursionError, tokenize.TokenError, SyntaxError):
        return False


def _comments(data: bytes) -> Counter[str]:
    tokens = tokenize.tokenize(io.BytesIO(data).readline)
    return Counter(token.string for token in tokens if token.type == tokenize.COMMENT)


def _cpp_tokens(data: bytes) -> list[bytes]:
    return [_plain(found) for found in _CPP_TOKEN.finditer(data)]


def _plain(found: re.Match[bytes]) -> bytes:
    """A token without the blanks that mean nothing in it."""
    text = found[0]
    return b" ".join(text.split()) if found.lastgroup == "comment" else text
