#!/bin/sh
# Install what the tests of the pages need besides Python: a Chromium and a font for Korean.
# Only root on Debian gets them; everybody else is told in one line. It never stops the caller: the
# tests themselves say what they miss.
set -u

missing=""
found=""
for browser in "${CHROME:-}" chromium chromium-browser google-chrome google-chrome-stable; do
    if [ -n "$browser" ] && command -v "$browser" >/dev/null 2>&1; then found=$browser; fi
done
[ -n "$found" ] || missing="chromium"
if [ -z "$(fc-list :lang=ko family 2>/dev/null)" ]; then missing="$missing fonts-nanum fontconfig"; fi
missing=${missing# }
[ -n "$missing" ] || exit 0

debian=$(sed -n 's/^ID=//p' /etc/os-release 2>/dev/null)
if [ "$debian" != debian ] || [ "$(id -u)" != 0 ]; then
    echo "machine packages: please install $missing (Debian, as root: apt-get install $missing)" >&2
    exit 0
fi

export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "machine packages: installing $missing" >&2
for pause in 2 8 0; do
    if apt-get update -qq >"$log" 2>&1; then break; fi
    sleep "$pause"
done
# shellcheck disable=SC2086  # several names on purpose
if ! apt-get install -y -qq --no-install-recommends $missing >"$log" 2>&1; then
    echo "machine packages: apt-get could not install $missing: $(tail -n 1 "$log")" >&2
fi
exit 0
