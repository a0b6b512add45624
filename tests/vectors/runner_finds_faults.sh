#!/bin/sh
# Each kind of bad file must give its own exit status: 1 for a mismatch, 2 for what is no vector.
set -u
runner=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0

expect() { # expect STATUS NAME, the file's text on stdin
    cat > "$dir/$2"
    "$runner" "$dir/$2" > "$dir/out" 2>&1
    got=$?
    if [ "$got" -ne "$1" ]; then
        echo "$2: exit $got, want $1"; cat "$dir/out"; failed=1
    fi
}

good='{"op": "swa_ring_rows", "window": 512, "max_ctx": 262144, "ok": 5151}'
printf '%s\n' "$good"                                                                       | expect 0 good
printf '%s\r\n\n%s' "$good" "$good"                                                         | expect 0 crlf-and-no-last-newline
printf '%s\n' '{"op": "swa_ring_rows", "window": 513, "max_ctx": 262144, "ok": 5151}'       | expect 1 wrong-value
printf '%s\n' '{"op": "head_shard", "heads": 8, "ranks": 3, "rank": 0, "error": "EINVAL"}'  | expect 1 wrong-error
printf '%s\n' '{"op": "head_shard", "heads": 8, "ranks": 2, "rank": 0, "error": "EGEOM"}'   | expect 1 error-wanted
printf '%s\n' '{"op": "no_such_rule", "ok": 1}'                                             | expect 2 unknown-op
printf '%s\n' '{"op": "swa_ring_rows", "window": 512, "ok": 5151}'                          | expect 2 missing-argument
printf '%s\n' '{"op": "swa_ring_rows", "window": -1, "max_ctx": 8, "ok": 8}'                | expect 2 negative
printf '%s\n' '{"op": "swa_ring_rows", "window": 512, "max_ctx": 262144}'                   | expect 2 nothing-to-compare
printf '%s\n' '{"window": 512}'                                                             | expect 2 no-kind
printf '%s\n' "$good" '{"op": '                                                             | expect 2 cut-off
printf '%s\n' '[1]'                                                                         | expect 2 no-object
printf '%s\n' '{"trace": 0, "steps": []}'                                                   | expect 2 no-steps
printf '%s\n' '{"trace": 0, "steps": [{"op": "begin", "ok": null}]}'                        | expect 2 no-new
printf '%s\n' '{"trace": 0, "steps": [{"op": "new", "capacity": 8, "window": null, "k_tok_bytes": 1, "v_tok_bytes": 1, "state": {"committed": 1, "staged": 0, "capacity": 8, "active": false, "base": null, "rows": 8}}]}' | expect 1 wrong-state
printf '%s\n' '{"format": "q9_9", "values": "00", "block": "00", "decoded": "00"}'          | expect 2 unknown-format
printf '%s\n' '{"format": "fp8", "value": "3f800000", "code": "39", "decoded": "3f800000"}' | expect 1 wrong-code
printf '%s\n' '{"format": "fp8", "value": "3f80", "code": "38", "decoded": "3f800000"}'     | expect 2 short-value
printf '%s\n' '{"op": "vote_decide", "records": [], "ok": {"outcome": "publish"}}'          | expect 2 no-records
printf ''                                                                                   | expect 2 empty
printf '\n\n'                                                                               | expect 2 blank
"$runner" "$dir/absent" > /dev/null 2>&1; [ $? -eq 2 ] || { echo "absent file: want exit 2"; failed=1; }
"$runner" > /dev/null 2>&1;               [ $? -eq 2 ] || { echo "no argument: want exit 2"; failed=1; }
"$runner" "$dir/good" "$dir/wrong-value" > /dev/null; [ $? -eq 1 ] || { echo "two files: want the worst"; failed=1; }
exit $failed
