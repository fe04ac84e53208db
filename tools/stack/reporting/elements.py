# SPDX-License-Identifier: Apache-2.0
"""Build HTML as a tree of elements, so that no text can become markup.

A tree needs no escaping by its author: texts and attributes are escaped when it is written. A template engine would be one more
dependency, and its escaping does not know addresses from text.
"""

from typing import TypeAlias
from urllib.parse import urlsplit
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from stack.base.text import printable

Child: TypeAlias = "Element | str | None"


def element(tag: str, *children: Child, **attributes: object) -> Element:
    """Make an element. None, as a child or a value, is left out; `class_` gives `class`, and `aria_label` gives `aria-label`."""
    made = Element(tag)
    for name, value in attributes.items():
        if value is not None:
            made.set(name.rstrip("_").replace("_", "-"), clean(str(value)))
    add(made, *children)
    return made


def add(parent: Element, *children: Child) -> None:
    """Append elements and texts to an element."""
    for child in children:
        if child is None:
            continue
        if not isinstance(child, str):
            parent.append(child)
        elif len(parent):
            parent[-1].tail = (parent[-1].tail or "") + clean(child)
        else:
            parent.text = (parent.text or "") + clean(child)


def clean(text: str) -> str:
    """Replace control characters, half surrogate pairs, and characters that change the direction of text."""
    return printable(text)


def link(address: str | None, *children: Child, **attributes: object) -> Element:
    """Make a link to a page on the web or in this document; for any other address, the children alone."""
    if address is None or not is_safe(address):
        return element("span", *children, **attributes)
    return element("a", *children, href=address, rel="noreferrer" if not address.startswith("#") else None, **attributes)


def is_safe(address: str) -> bool:
    """Return whether a browser that follows the address only opens a page: not for `javascript:` and the like."""
    if address.startswith("#"):
        return True
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.scheme in ("https", "http") and bool(parts.netloc)


def written(root: Element) -> str:
    """Write a tree as HTML."""
    return "<!DOCTYPE html>\n" + ElementTree.tostring(root, encoding="unicode", method="html") + "\n"
