#!/bin/sh
# installed.sh BUILD_DIR: the module of an installed prefix, moved elsewhere, finds the library beside itself, with no variable but PYTHONPATH.
set -eu
python=${PYTHON:-python3}
command -v "$python" > /dev/null || { echo "skipped: no $python here"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$1" --prefix "$work/first" > "$work/install.log"
mv "$work/first" "$work/prefix"
unset KVGRID_LIBRARY
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$work/prefix/lib/python3/dist-packages"
cd /
"$python" - "$work/prefix" << 'END'
import sys
import kvgrid
assert kvgrid.__file__.startswith(sys.argv[1]) and kvgrid.lib.path.startswith(sys.argv[1]), (kvgrid.__file__, kvgrid.lib.path)
with kvgrid.Grid() as grid:
    print("kvgrid %s from %s: %d rank" % (kvgrid.__version__, kvgrid.lib.path[len(sys.argv[1]):], grid.ranks))
END
[ -z "$(find "$work/prefix" -name __pycache__)" ] || { echo "__pycache__ is installed"; exit 1; }
