#!/bin/sh
# run.sh TEST.py: runs it by $PYTHON (python3), with the sanitizers' run time loaded ahead of the interpreter where the library has them. 77: skipped.
set -eu
python=${PYTHON:-python3}
command -v "$python" > /dev/null || { echo "skipped: no $python here"; exit 77; }
export PYTHONDONTWRITEBYTECODE=1
case ${SANITIZE:-} in
*thread*) echo "skipped: ThreadSanitizer wants the interpreter built with it"; exit 77 ;;
*address*)
    # Python keeps memory to its end, and LeakSanitizer cannot tell that from ours.
    export ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS:-}"
    preload=$("$CC" -print-file-name=libasan.so)
    exec env LD_PRELOAD="$preload" "$python" "$1"
    ;;
esac
exec "$python" "$1"
