#!/bin/sh
# free-ids.sh FILE... - the first 65536 subordinate ids that no line of FILE... (/etc/subuid, /etc/subgid) names, as FIRST-LAST.
#
# With ranges that overlap, each of two users could act as the subordinate users of the other.
set -eu

cat "$@" 2>/dev/null | awk -F: '
    BEGIN { next_id = 100000 }
    $2 ~ /^[0-9]+$/ && $3 ~ /^[0-9]+$/ && $2 + $3 > next_id { next_id = $2 + $3 }
    END {
        if (next_id > 4294967294 - 65536)
            exit 1
        printf "%d-%d\n", next_id, next_id + 65535
    }'
