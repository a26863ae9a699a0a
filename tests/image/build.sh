#!/usr/bin/env bash
# Builds the image of conf/Dockerfile, and runs a night and a question in it: tests/image/build.sh [OPTION of buildah build …]
# As root, with the Debian packages buildah, crun and debootstrap. It takes some minutes: before a release, not in CI.
# Where no registry of images is reached, the base image is made from Debian's packages. Where pip needs settings of
# this machine, such as a certificate, give them: -v /etc/pip.conf:/etc/pip.conf:ro -v …
set -euo pipefail
project=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp --directory)
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
buildah() { command buildah --root "$folder/images" --runroot "$folder/run" "$@"; }
clean() { buildah rm --all >/dev/null && rm -rf "$folder"; }
trap clean EXIT

base=docker.io/library/debian:trixie-slim
if ! buildah pull --quiet "$base" 2>/dev/null; then
  debootstrap --variant=minbase trixie "$folder/debian" >"$folder/debootstrap.log"
  container=$(buildah from scratch)
  buildah copy --quiet "$container" "$folder/debian" /
  buildah commit --quiet "$container" "$base"
fi
mkdir "$folder/source"
git -C "$project" archive HEAD | tar --extract --directory="$folder/source"
buildah build --pull-never --layers=false "$@" --file "$folder/source/conf/Dockerfile" --tag mqsieve "$folder/source"

container=$(buildah from --pull-never localhost/mqsieve)
install --directory --mode=777 "$folder/data"
in_image() {
  buildah run -v "$project/tests/cases/captures/small:/copy:ro" -v "$folder/data:/data" "$container" -- mqsieve "$@"
}
in_image nightly --warehouse /data/mqsieve --store /copy/store --broker-config /copy/broker.conf \
  --subscriptions /copy/subscription_events.jsonl >/dev/null
in_image explain --warehouse /data/mqsieve --message ord-370 --group cg_sql_region_price | grep "stage 1, filter bit map"
