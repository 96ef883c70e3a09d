#!/usr/bin/env bash
# Install the Debian packages that some tests need, where the user may; else name the command and go on.
set -u
missing=()
command -v bwrap >/dev/null || missing+=(bubblewrap)
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
    || missing+=(chromium)
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then as_root=(sudo -n); else as_root=(unavailable); fi
fi
if command -v apt-get >/dev/null && [ "${as_root[*]:-}" != unavailable ]; then
    echo "installing ${missing[*]}"
    install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}")
    "${install[@]}" >/dev/null 2>&1 && exit 0
    "${as_root[@]}" apt-get update -qq >/dev/null 2>&1
    "${install[@]}" >/dev/null && exit 0
fi
echo "not installed: ${missing[*]}. The tests that need them will be skipped. To have them:"
if command -v apt-get >/dev/null; then
    echo "    sudo apt-get install ${missing[*]}"
else
    echo "    install them with this system's package manager (bubblewrap is for Linux only)"
fi
exit 0
