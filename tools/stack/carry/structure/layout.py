# SPDX-License-Identifier: Apache-2.0
"""Distinguish changes of layout from changes of meaning: two texts are the same program if they parse to the same tree.

Whitespace is never just dropped: it is part of strings, and syntax in Python, YAML and make. Files in languages without a rule
here must be equal byte for byte.
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

# A preprocessor directive ends with its line; everywhere else in C++, a line end is ordinary whitespace.
_CPP_TOKEN = re.compile(
    rb"(?P<directive>^[ \t]*\#(?:[^\\\n]|\\.|\\\n)*)"
    rb'|(?P<exact>R"([^()\\\s]{0,16})\(.*?\)\3"|"(?:[^"\\\n]|\\.)*"|(?<![0-9a-fA-F])\'(?:[^\'\\\n]|\\.)*\')'
    rb"|(?P<comment>//[^\n]*|/\*.*?\*/)"
    rb"|(?P<word>[\w.]+|<<=|>>=|<=>|->\*|\.\.\.|::|->|\+\+|--|&&|\|\||<<|>>|[-+*/%&|^!=<>]=|\#\#|[^\s])",
    re.DOTALL | re.MULTILINE,
)


def same(path: str, version: bytes, other: bytes) -> bool:
    """Return whether two versions of a file differ in layout only."""
    if version == other:
        return True
    if reflow.joined(version) != reflow.joined(other):
        return False  # A cheap test that rejects most pairs: a formatter changes only whitespace, quotes and commas.
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in PYTHON:
        return _same_python(version, other)
    return suffix in CPP and _cpp_tokens(version) == _cpp_tokens(other)


def _same_python(version: bytes, other: bytes) -> bool:
    try:
        trees = [ast.dump(Source(data).tree) for data in (version, other)]
        return trees[0] == trees[1] and _comments(version) == _comments(other)
    except (Doubt, RecursionError, tokenize.TokenError, SyntaxError):
        return False


def _comments(data: bytes) -> Counter[str]:
    tokens = tokenize.tokenize(io.BytesIO(data).readline)
    return Counter(token.string for token in tokens if token.type == tokenize.COMMENT)


def _cpp_tokens(data: bytes) -> list[bytes]:
    return [_plain(token) for token in _CPP_TOKEN.finditer(data)]


def _plain(token: re.Match[bytes]) -> bytes:
    """Return a token's text; whitespace in a comment is normalised."""
    text = token[0]
    return b" ".join(text.split()) if token.lastgroup == "comment" else text
