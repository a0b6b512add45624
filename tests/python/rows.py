"""What the tests share: where things are, rows by a formula, workers that are forked, skipping."""
import os
import pickle
import signal
import sys
import traceback
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "launch", "python"))
BUILD = os.environ.get("KVGRID_BUILD", os.path.join(ROOT, "build"))
MODEL = os.path.join(ROOT, "tests", "data", "models", "tinyllama-1.1b.json")
SKIP = 77


def skip(reason):
    print("skipped: " + reason)
    sys.exit(SKIP)


def numpy_or_skip():
    try:
        import numpy
    except ImportError:
        skip("%s has no numpy (Debian: python3-numpy)" % sys.executable)
    return numpy


def torch_or_skip():
    try:
        import torch
    except ImportError:
        skip("%s has no torch" % sys.executable)
    return torch


def elements(numpy, id, layer, plane, heads, first_head, rows, first_row, dims):
    """bf16 bits [rows][heads][dims], as reference.c has them."""
    row, head, dim = numpy.ogrid[first_row:first_row + rows, first_head:first_head + heads, 0:dims]
    return (0x3f80 + ((row * 131 + layer * 31 + plane * 17 + head * 7 + dim * 3 + id * 13) & 0x3ff)).astype(numpy.uint16)


def write_step(numpy, kvgrid, batch, step, ids, convert=lambda array: array):
    """Writes the current pass of every layer of this rank by the formula."""
    for il in batch.placement.layers:
        view = batch.plane_view(il)
        parts = []
        for plane, dims in ((kvgrid.PLANE_K, view.k.head_dim), (kvgrid.PLANE_V, view.v.head_dim)):
            parts.append(convert(numpy.concatenate([
                elements(numpy, ids[slot], il, plane, view.heads, view.head_first, rows, first, dims)
                for slot, (rows, first) in enumerate(zip(step.rows, step.first_rows)) if rows])))
        if view.owns:
            batch.write_kv(il, parts[0], parts[1])


def forked(ranks, work, before=None, lost=()):
    """work(rank, what `before` made) in `ranks` forked processes: their results, by rank. A worker that fails, fails the caller; ranks of `lost`
    may die."""
    shared = before() if before else None
    pipes, pids = [], []
    sys.stdout.flush()
    sys.stderr.flush()
    for rank in range(ranks):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            signal.alarm(150)  # nothing stays behind, whatever hangs
            try:
                answer = (True, work(rank, shared))
            except BaseException:
                answer = (False, "rank %d:\n%s" % (rank, traceback.format_exc()))
            with os.fdopen(writer, "wb") as file:
                pickle.dump(answer, file)
            os._exit(0)
        os.close(writer)
        pipes.append(reader)
        pids.append(pid)
    answers = []
    for rank, (reader, pid) in enumerate(zip(pipes, pids)):
        with os.fdopen(reader, "rb") as file:
            text = file.read()
        os.waitpid(pid, 0)
        if not text:
            if rank not in lost:
                raise AssertionError("rank %d died" % rank)
            answers.append(None)
            continue
        well, answer = pickle.loads(text)
        if not well:
            raise AssertionError(answer)
        answers.append(answer)
    return answers


def main():
    """unittest.main, and 77 where every test was skipped."""
    program = unittest.main(exit=False, verbosity=2, module="__main__")
    result = program.result
    if result.testsRun == 0 or not result.wasSuccessful():
        sys.exit(1)
    if len(result.skipped) == result.testsRun:
        sys.exit(SKIP)
