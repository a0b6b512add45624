#!/usr/bin/env bash
# visible_devices.sh KVGRID SOURCES: whatever CUDA_VISIBLE_DEVICES says, the command runs the same: nothing of ours reads it (B107).
set -euo pipefail
kvgrid=$1 root=$2
fail() { echo "visible_devices: $*"; exit 1; }

grep -rqn 'getenv("CUDA_VISIBLE_DEVICES' "$root"/{runtime,kernels,tp,pp,launch} && fail "a source reads it"
plan=("$kvgrid" plan --model "$root/tests/data/models/qwen3-8b.json" --tp 2 --device-memory 80GiB)
plain=$(env -u CUDA_VISIBLE_DEVICES "${plan[@]}")
for value in "" 0 1,0 GPU-5a2c0a4e-8e1f-4d4e-9d9a-1f2e3d4c5b6a MIG-5a2c0a4e-8e1f-4d4e-9d9a-1f2e3d4c5b6a/1/0 99999999999999999999 -1 no,device; do
    [ "$(CUDA_VISIBLE_DEVICES=$value "${plan[@]}")" = "$plain" ] || fail "with \"$value\" plan says something else"
    status=0
    CUDA_VISIBLE_DEVICES=$value "$kvgrid" doctor >/dev/null || status=$?
    [ "$status" -le 1 ] || fail "with \"$value\" doctor ends with status $status"
done
echo "visible_devices: 8 values, one answer"
