#!/usr/bin/env bash
# Installs Debian's Chromium, which tests/browser needs, where there is no browser.
set -euo pipefail
for browser in chromium chromium-browser google-chrome; do
  command -v "$browser" >/dev/null && exit
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
else
  echo "tests/browser needs Chromium: install it (e.g. apt-get install chromium)" >&2
  exit 1
fi
