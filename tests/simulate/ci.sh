#!/usr/bin/env bash
# What CI runs of the simulator: seeds that stay, and one that changes with the day and is printed, so that it can be run again. At most 30 seconds.
#   ci.sh PATH-OF-SIMULATE
set -euo pipefail
day=$(date -u +%Y%m%d)
for seed in 1 2 3; do
    "$1" --seed "$seed" --steps 80000 --seconds 6
done
echo "the day's seed: $1 --seed $day --steps 10000000"
"$1" --seed "$day" --steps 10000000 --seconds 9
