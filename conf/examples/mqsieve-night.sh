#!/bin/bash
# A night, for cron and systemd: copies the store, then runs the night, its page and its audit, one night at a time.
# Change the paths: install --mode=755 mqsieve-night.sh /usr/local/bin/mqsieve-night
# The exit code is that of the first command that did not end with 0. Where the copy fails, there is no night.
store=broker:/store # of rsync; on the broker's machine: /store

exec 9>>/var/lib/mqsieve/lock
flock --nonblock 9 || { echo "the night before still runs" && exit 4; }
# The log ends with the errors.
exec 2>/var/lib/mqsieve/errors
trap 'cat /var/lib/mqsieve/errors' EXIT

# 24: the broker deleted a file while it was copied.
copy() { rsync --archive --checksum "$@" /copy/store/ || [ $? = 24 ] || exit 1; }
copy "$store/commitlog"
copy --ignore-missing-args "$store"/{consumequeue,consumequeue_ext,checkpoint,config}
sleep 15 # until record has looked once more

code=0
run() { "$@" || { local failed=$? && [ $code != 0 ] || code=$failed; }; }
run /opt/mqsieve/bin/mqsieve nightly --warehouse /data/mqsieve --store /copy/store --recorded /data/recorded --metrics /var/lib/node_exporter/mqsieve.prom --strict
run /opt/mqsieve/bin/mqsieve report --warehouse /data/mqsieve --output /www/night.html
run /opt/mqsieve/bin/mqsieve audit --warehouse /data/mqsieve --fail-on error
exit $code
