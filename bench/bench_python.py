#!/usr/bin/env python3
"""What does Python add to a call? Microseconds a call in C (bench_calls), by the module's classes, and by kvgrid.lib, in one run.

    bench_python.py BUILD_DIR [CONFIG]"""
import os
import platform
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "launch", "python"))
BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join(ROOT, "build")
os.environ.setdefault("KVGRID_LIBRARY", os.path.join(BUILD, "libkvgrid.so"))
import ctypes  # noqa: E402

import numpy  # noqa: E402

import kvgrid  # noqa: E402

ROUNDS, CALLS = 15, 2000


def best(call):
    least = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(CALLS):
            call()
        least = min(least, (time.perf_counter() - began) / CALLS * 1e6)
    return least


def raw_cycle(batch):
    rows = (ctypes.c_uint32 * 4)(1)
    commit = kvgrid.COMMIT_INIT(accepted=(ctypes.c_uint32 * 4)())
    step, outcome, handle = ctypes.POINTER(kvgrid.KvgStep)(), kvgrid.KvgOutcome(), batch._as_parameter_
    begin, post, wait = kvgrid.lib.kvg_step_begin, kvgrid.lib.kvg_step_post, kvgrid.lib.kvg_step_wait

    def cycle():
        begin(handle, rows, step)
        post(step, commit)
        wait(step, outcome)
    return cycle


def main():
    config = kvgrid.ModelConfig(sys.argv[2] if len(sys.argv) > 2 else os.path.join(ROOT, "tests/data/models/tinyllama-1.1b.json"))
    text = subprocess.run([os.path.join(BUILD, "bench", "bench_calls")] + sys.argv[2:3], stdout=subprocess.PIPE, check=True, cwd=ROOT).stdout.decode()
    of_c = {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines()}
    grid = kvgrid.Grid()
    placement = grid.place(config, memory_bytes=64 << 20, max_sequences=4, format_k="bf16", format_v="bf16")
    batch = placement.batch_create(4)
    sequence = placement.sequence_open(1, 64)
    batch.set(0, sequence)

    def cycle():
        step = batch.step_begin([1, 0, 0, 0])
        step.post([0, 0, 0, 0])
        step.wait()
    lib, info, stats = kvgrid.lib, kvgrid.KvgSequenceInfo(), kvgrid.KvgStats()
    info.size, stats.size = ctypes.sizeof(info), ctypes.sizeof(stats)
    on, at, of, by = grid._as_parameter_, placement._as_parameter_, sequence._as_parameter_, batch._as_parameter_
    calls = {
        "grid_rank": (lambda: grid.rank, lambda: lib.kvg_grid_rank(on)),
        "sequence_info": (sequence.info, lambda: lib.kvg_sequence_info(of, info)),
        "stats": (placement.stats, lambda: lib.kvg_stats(at, stats)),
        "plane_view": (lambda: batch.plane_view(3), lambda: lib.kvg_plane_view(by, 3)),
        "step begin + post + wait": (cycle, raw_cycle(batch)),
    }
    took = {name: [best(call) for call in both] for name, both in calls.items()}
    step = batch.step_begin([1, 0, 0, 0])
    kv = numpy.zeros((1, 4, 64), numpy.uint16)
    rows = kvgrid.ROWS_INIT(k=kv.ctypes.data, v=kv.ctypes.data, dtype=kvgrid.BF16)
    took["write_kv, 1 row"] = [best(lambda: batch.write_kv(3, kv, kv)), best(lambda: lib.kvg_write_kv(by, 3, rows, None))]
    step.post(accept_all=True)
    step.wait()
    view = batch.plane_view(3)
    took["k.chunks as a NumPy array"] = [best(lambda: numpy.asarray(view.k.chunks)), None]
    grid.close()

    print("# bench_python: kvgrid %s, Python %s, NumPy %s; %d rounds of %d calls, the best" % (
        kvgrid.__version__, platform.python_version(), numpy.__version__, ROUNDS, CALLS))
    print("# %-26s %9s %9s %9s %9s" % ("call", "C", "class", "lib", "class - C"))
    print("# %-26s %9s %9s %9s %9s" % ("", "(us)", "(us)", "(us)", "(us)"))
    for name, (by_class, by_lib) in took.items():
        c = of_c.get(name)
        print("  %-26s %9s %9.2f %9s %9s" % (name, "-" if c is None else "%.2f" % c, by_class, "-" if by_lib is None else "%.2f" % by_lib,
                                             "-" if c is None else "%.2f" % (by_class - c)))


if __name__ == "__main__":
    main()
