"""Whole programs: workers that are forked, write rows from NumPy, step, refuse, fork, close; the same digest as C's; who runs while one waits."""
import ctypes
import os
import socket
import subprocess
import threading
import time
import unittest

import rows

numpy = rows.numpy_or_skip()
import kvgrid  # noqa: E402


def engine(grid):
    """The program of reference.c, on any grid: the digests of both sequences, and what was seen on the way."""
    seen = {}
    with kvgrid.ModelConfig(rows.MODEL) as config:
        placement = grid.place(config, memory_bytes=64 << 20, max_sequences=4, format_k="bf16", format_v="bf16")
    batch = placement.batch_create(2)
    last = grid.stage == grid.pp - 1
    ids = (1, 2)

    def step(counts, accepted=None, refuse=kvgrid.OK):
        made = batch.step_begin(counts)
        rows.write_step(numpy, kvgrid, batch, made, ids)
        if not last:
            made.post(refuse=refuse)
        elif accepted is None:
            made.post(accept_all=True, refuse=refuse)
        else:
            made.post(accepted, refuse=refuse)
        return made.wait()

    first = placement.sequence_open(1)
    batch.set(0, first)
    assert step([70, 0]).accepted == [70, 0]
    for _ in range(3):
        step([1, 0])
    assert step([4, 0], accepted=[2, 0]).accepted == [2, 0]
    try:
        step([3, 0], refuse=kvgrid.EIO if grid.rank == grid.ranks - 1 else kvgrid.OK)
    except kvgrid.Refused as error:
        seen["refused"] = (error.status, error.outcome.kind, error.outcome.rank, error.outcome.reason, str(error))
    assert first.info().rows == 75
    second = first.fork(66, id=2)
    batch.set(1, second)
    step([5, 2])
    try:
        first.rewind(1000)
    except kvgrid.Invalid as error:
        seen["rewind"] = str(error)
    seen["digests"] = [first.digest(), second.digest()]
    first.close()
    second.close()
    seen["booked"] = placement.stats().booked_bytes
    placement.close()
    return seen


def over_shm(rank, fd, ranks=4, tp=2):
    with kvgrid.shm_bootstrap_create(fd=fd, rank=rank, ranks=ranks) as bootstrap:
        return kvgrid.Grid(bootstrap, tp=tp, pp=ranks // tp)


class WholePrograms(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with kvgrid.Grid() as grid:
            cls.alone = engine(grid)

    def check(self, answers):
        for rank, seen in enumerate(answers):
            self.assertEqual(seen["digests"], self.alone["digests"], "rank %d" % rank)
            self.assertEqual(seen["booked"], 0)
            status, kind, who, reason, sentence = seen["refused"]
            self.assertEqual((status, kind, who, reason), (kvgrid.EREFUSED, "refused", len(answers) - 1, kvgrid.EIO))
            self.assertIn("EIO", sentence)
            self.assertIn("1000", seen["rewind"])

    def test_one_rank_has_the_digests_of_the_same_rows_written_by_c(self):
        text = subprocess.run([os.path.join(rows.BUILD, "tests", "python_reference"), rows.MODEL], stdout=subprocess.PIPE, check=True).stdout.decode()
        self.assertEqual(self.alone["digests"], text.split())
        self.assertNotEqual(*self.alone["digests"])

    def test_four_forked_workers_over_shared_memory_have_them_too(self):
        def work(rank, fd):
            with over_shm(rank, fd) as grid:
                return engine(grid)
        self.check(rows.forked(4, work, lambda: kvgrid.shm_memory(4)))

    def test_four_workers_over_a_tcp_rendezvous_have_them_too(self):
        listening = socket.create_server(("127.0.0.1", 0))  # it blocks, as sockets of Python do
        self.addCleanup(listening.close)

        def before():
            return listening, "127.0.0.1:%d" % listening.getsockname()[1]

        def work(rank, shared):
            _, address = shared
            fd = os.dup(listening.fileno()) if rank == 0 else -1
            listening.close()
            with kvgrid.rendezvous_create(address, secret="a secret of the tests", rank=rank, ranks=4, listen_fd=fd) as bootstrap:
                assert bootstrap.allgather(b"%d" % rank) == [b"0", b"1", b"2", b"3"]
                with kvgrid.Grid(bootstrap, tp=4, pp=1) as grid:
                    return engine(grid)
        self.check(rows.forked(4, work, before))

    def test_a_python_all_gather_starts_a_grid(self):
        """The frontend's own: here over multiprocessing's queues."""
        import multiprocessing
        context = multiprocessing.get_context("fork")

        def before():
            return [context.SimpleQueue() for _ in range(4)]

        def work(rank, queues):
            round_ = [0]
            early = {}

            def allgather(mine, timeout_ms):
                assert timeout_ms > 0
                round_[0] += 1
                for queue in queues:
                    queue.put((round_[0], rank, mine))
                while len(early.get(round_[0], {})) < 4:
                    number, sender, part = queues[rank].get()
                    early.setdefault(number, {})[sender] = part
                parts = early.pop(round_[0])
                return [parts[sender] for sender in range(4)]
            with kvgrid.Grid(kvgrid.Bootstrap(rank, 4, allgather), tp=1, pp=4) as grid:
                return engine(grid)
        self.check(rows.forked(4, work, before))

    def test_one_thread_drives_two_ranks_in_process(self):
        with kvgrid.Inproc(2) as hub, kvgrid.ModelConfig(rows.MODEL) as config:
            grids = kvgrid.grid_create_inproc(hub, tp=2)
            setups = [grid.place_start(config, memory_bytes=32 << 20, max_sequences=2, format_k="bf16", format_v="bf16") for grid in grids]
            while not all([setup.test() for setup in setups]):
                pass
            placements = [setup.result for setup in setups]
            batches = [placement.batch_create(1) for placement in placements]
            sequences = [placement.sequence_open(7) for placement in placements]
            for batch, sequence in zip(batches, sequences):
                batch.set(0, sequence)
            steps = [batch.step_begin([3]) for batch in batches]
            for batch, step in zip(batches, steps):
                rows.write_step(numpy, kvgrid, batch, step, (7,))
                step.post(accept_all=True)
            self.assertEqual([step.wait().accepted for step in steps], [[3], [3]])
            setups = [sequence.digest_start() for sequence in sequences]
            while not all([setup.test() for setup in setups]):
                pass
            self.assertEqual(setups[0].result, setups[1].result)
            for grid in grids:
                grid.close()


def two_ranks(rank, fd):
    """A grid of two over shared memory, with an empty step's batch."""
    grid = over_shm(rank, fd, 2)
    with kvgrid.ModelConfig(rows.MODEL) as config:
        placement = grid.place(config, memory_bytes=16 << 20, max_sequences=2, format_k="bf16", format_v="bf16")
    return grid, placement.batch_create(1)


class WhoRunsMeanwhile(unittest.TestCase):
    LATE = 0.6

    def ticks(self, wait):
        """How often a second thread of rank 0 ticked while the first waited for rank 1, which is late."""
        def work(rank, fd):
            grid, batch = two_ranks(rank, fd)
            with grid:
                step = batch.step_begin([0])
                if rank == 1:
                    time.sleep(self.LATE)
                    step.post(accept_all=True)
                    step.wait()
                    return None
                ticks, stop = [0], threading.Event()

                def tick():
                    while not stop.is_set():
                        time.sleep(0.001)
                        ticks[0] += 1
                step.post(accept_all=True)
                thread = threading.Thread(target=tick)
                thread.start()
                before, began = ticks[0], time.monotonic()
                wait(step)
                waited, counted = time.monotonic() - began, ticks[0] - before
                stop.set()
                thread.join()
                return waited, counted
        return rows.forked(2, work, lambda: kvgrid.shm_memory(2))[0]

    def test_another_thread_runs_while_one_waits_for_a_late_peer(self):
        waited, counted = self.ticks(lambda step: step.wait())
        self.assertGreater(waited, self.LATE / 2)
        self.assertGreater(counted, 10)

    def test_it_would_not_with_the_interpreter_lock_held(self):
        """That the test above can fail: the same call by PyDLL, which keeps the lock."""
        held = ctypes.PyDLL(kvgrid.lib.path).kvg_step_wait
        held.argtypes = kvgrid.lib.kvg_step_wait.argtypes
        waited, counted = self.ticks(lambda step: held(step, None))
        self.assertGreater(waited, self.LATE / 2)
        self.assertLess(counted, 10)


class Losses(unittest.TestCase):
    def after_a_death(self, on_lost):
        """Rank 1 dies with its step unposted: what rank 0 raises, and what its callback saw."""
        def work(rank, shared):
            fd, (reader, writer) = shared
            seen = []
            with kvgrid.shm_bootstrap_create(fd=fd, rank=rank, ranks=2) as bootstrap:
                grid = kvgrid.Grid(bootstrap, tp=2, on_lost=lambda who, why: on_lost(seen, who, why))
            with kvgrid.ModelConfig(rows.MODEL) as config:
                batch = grid.place(config, memory_bytes=16 << 20, max_sequences=2, format_k="bf16", format_v="bf16").batch_create(1)
            step = batch.step_begin([0])
            if rank == 1:
                os.read(reader, 1)
                os._exit(3)
            step.post(accept_all=True)
            os.write(writer, b"!")
            raised = []
            for _ in range(2):
                try:
                    step.wait()
                except Exception as error:
                    raised.append((type(error).__name__, str(error), type(error.__context__).__name__))
            try:
                grid.state()
            except kvgrid.Error as error:
                raised.append(type(error).__name__)
            grid.settle([0])
            grid.close()
            return raised, seen
        return rows.forked(2, work, lambda: (kvgrid.shm_memory(2), os.pipe()), lost=(1,))[0]

    def test_a_dead_peer_is_named_and_the_callback_told(self):
        raised, seen = self.after_a_death(lambda seen, who, why: seen.append((who, why)))
        self.assertEqual(raised[0][0], "InDoubt")
        self.assertIn("rank 1", raised[0][1])
        self.assertIn(raised[2], ("InDoubt", "PeerLost"))
        self.assertEqual([who for who, _ in seen], [1])
        self.assertIn("rank 1", seen[0][1])

    def test_what_the_callback_raises_is_raised_by_the_wait(self):
        def on_lost(seen, who, why):
            seen.append((who, why))
            raise KeyError("no spare for rank %d" % who)
        raised, seen = self.after_a_death(on_lost)
        self.assertEqual((raised[0][0], raised[0][2]), ("KeyError", "InDoubt"))
        self.assertIn("no spare for rank 1", raised[0][1])
        self.assertIn(raised[1][0], ("InDoubt", "PeerLost"))
        self.assertEqual(len(seen), 1)


if __name__ == "__main__":
    rows.main()
