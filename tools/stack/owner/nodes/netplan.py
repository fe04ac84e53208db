# SPDX-License-Identifier: Apache-2.0
"""Write the link's addresses as a netplan file, and apply it on a node; a file that netplan refuses is taken back."""

from collections.abc import Sequence
from ipaddress import IPv4Interface

from stack.base.errors import StackError
from stack.owner.nodes.facts import Facts
from stack.owner.nodes.plan import MTU, Port

FILE = "/etc/netplan/90-stack.yaml"
_SECONDS = 120.0
_APPLY = """
set -eu
umask 077
file=${{STACK_NETPLAN:-{file}}}
rm -f "$file.before"
if [ -e "$file" ]; then cp -p "$file" "$file.before"; fi
cat > "$file.new" <<'END_OF_NETPLAN'
{text}END_OF_NETPLAN
back() {{ if [ -e "$file.before" ]; then mv "$file.before" "$file"; else rm -f "$file"; fi; }}
mv "$file.new" "$file"
if ! netplan generate; then back; exit 1; fi
if ! netplan apply; then back; netplan apply; exit 1; fi
"""
"""Netplan reads names that end with .yaml only, so the new file counts at once or not at all."""


def text(port: Port, addresses: Sequence[IPv4Interface]) -> str:
    """Write the file of one node."""
    lines = [
        "# SPDX-License-Identifier: Apache-2.0",
        "# The link to the other machines, by `spark-stack setup`. To take it back: remove this file, then `sudo netplan apply`.",
        "network:",
        "  version: 2",
        "  ethernets:",
    ]
    for link, address in zip(port.links, addresses, strict=True):
        lines += [
            f"    {link.name}:",
            f"      addresses: [{address}]",
            "      dhcp4: false",
            "      link-local: []",
            f"      mtu: {MTU}",
        ]
    return "\n".join(lines) + "\n"


def demand(facts: Facts) -> None:
    """Check that a node can apply a file.

    Raises:
        StackError: It has no netplan, or gives no rights.

    """
    if not facts.netplan:
        raise StackError(f"{facts.node.name} has no netplan", "give the link the addresses above by its own tool")
    if not facts.root:
        raise StackError(
            f"{facts.node.name} asks for a password for root", f"write the file above to {FILE} there, then: sudo netplan apply"
        )


def apply(facts: Facts, content: str) -> None:
    """Put a file in place on a node, and apply it. The file that was there before stays as FILE.before.

    Raises:
        StackError: The node is not reached, or netplan refuses the file: then the earlier one is back.

    """
    facts.node.script(_APPLY.format(file=FILE, text=content), _SECONDS, root=True)
