#!/bin/sh
# run.sh TEST.py: runs it by $PYTHON, with the sanitizers' run time loaded ahead of the interpreter where the library has them. Without $PYTHON by python3, or by the
# system's where that one alone has NumPy. 77: skipped.
set -eu
python=${PYTHON:-python3}
if [ -z "${PYTHON:-}" ] && ! python3 -c 'import numpy' 2> /dev/null && /usr/bin/python3 -c 'import numpy' 2> /dev/null; then python=/usr/bin/python3; fi
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
