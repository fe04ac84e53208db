# SPDX-License-Identifier: Apache-2.0
"""Run a command as root with a machine of its own: maintainer scripts of packages are programs of others.

In namespaces of its own it has no network, sees no other process, has only harmless devices, and can write below one folder only. It keeps the
rights over files that dpkg needs, and loses those to mount, to make devices, and to change the kernel.
"""

import functools
import shutil
import subprocess
from pathlib import Path

_SPACES = ("--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc")
_KEPT = ("chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap", "sys_chroot")
_SCRIPT = r"""
writable=$1 kept=$2
shift 2
# proot makes its files in /tmp, whatever it is told: that is a new one, below which the folder may be.
mount --bind "$writable" /mnt
mount -t tmpfs -o nosuid none /tmp
mkdir -p "$writable"
mount --bind /mnt "$writable"
umount /mnt
cd "$writable"
devices=$(mktemp -d "$writable/dev-XXXXXX")
mount -t tmpfs -o nosuid,size=64m none "$devices"
for name in null zero full random urandom; do
    : > "$devices/$name"
    mount --bind "/dev/$name" "$devices/$name"
done
mkdir -m 1777 "$devices/shm"
ln -s /proc/self/fd "$devices/fd"
mount --rbind "$devices" /dev
case $writable in
    # Its path has gone with the old /dev; the current folder is it still.
    /dev/*) mkdir -p "$writable" && mount --no-canonicalize --bind . "$writable" ;;
esac
while read -r _ _ _ _ place _; do
    case $(printf '%b' "$place") in
        "$writable" | "$writable"/* | /dev | /dev/* | /proc | /tmp) ;;
        *) mount -o remount,bind,ro "$(printf '%b' "$place")" 2> /dev/null || : ;;
    esac
done < /proc/self/mountinfo
if ( : > /.stack-writes ) 2> /dev/null; then
    rm -f /.stack-writes
    echo "the machine's files could be written" >&2
    exit 97
fi
exec setpriv --bounding-set="$kept" --inh-caps=-all "$@"
"""


@functools.cache
def command(writable: Path) -> tuple[str, ...] | None:
    """Return the command in front of another one that confines it to a folder; None if this machine allows no namespaces.

    They need root, util-linux, and in a container the right to mount (CAP_SYS_ADMIN).
    """
    if any(shutil.which(name) is None for name in ("unshare", "setpriv", "mount")):
        return None
    kept = ",".join(("-all", *(f"+{name}" for name in _KEPT)))
    words = ("unshare", *_SPACES, "sh", "-euc", _SCRIPT, "sh", str(writable.resolve()), kept)
    tried = subprocess.run([*words, "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return words if tried.returncode == 0 else None
