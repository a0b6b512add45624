"""Finding the library, statuses as exceptions, callbacks that raise, handles that are closed, names."""
import copy
import ctypes
import gc
import os
import pickle
import re
import subprocess
import sys
import tempfile
import threading
import traceback
import unittest
import weakref

import rows

import kvgrid
from kvgrid import _abi, _call


def python(code, **variables):
    """A fresh interpreter with the module on its path: (status, stdout and stderr)."""
    environment = dict(os.environ, PYTHONPATH=os.path.join(rows.ROOT, "launch", "python"), **variables)
    made = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    return made.returncode, made.stdout.decode()


class Finding(unittest.TestCase):
    def other_version(self, folder):
        source, library = os.path.join(folder, "other.c"), os.path.join(folder, "libkvgrid.so")
        with open(source, "w") as file:
            file.write('const char *kvg_version(int *a, int *b, int *c) { (void)a, (void)b, (void)c; return "0.0.9"; }\n')
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", source, "-o", library], check=True,
                       env={name: value for name, value in os.environ.items() if name != "LD_PRELOAD"})
        return library

    def test_the_environment_names_it(self):
        status, said = python("import kvgrid; print(kvgrid.lib.path)", KVGRID_LIBRARY=kvgrid.lib.path)
        self.assertEqual((status, said.strip()), (0, kvgrid.lib.path))

    def test_one_that_is_not_there_is_named(self):
        status, said = python("import kvgrid", KVGRID_LIBRARY="/nowhere/libkvgrid.so")
        self.assertEqual(status, 1)
        self.assertIn("ImportError: no libkvgrid was found", said)
        self.assertIn("/nowhere/libkvgrid.so", said)
        source = os.path.relpath(rows.ROOT)
        build = os.path.normpath(os.path.join(source, "build"))
        self.assertTrue(said.rstrip().endswith("; build it: cmake -S %s -B %s && cmake --build %s" % (source, build, build)), said)

    def test_another_version_is_refused_by_name(self):
        with tempfile.TemporaryDirectory() as folder:
            status, said = python("import kvgrid", KVGRID_LIBRARY=self.other_version(folder))
        self.assertEqual(status, 1)
        self.assertIn("is kvgrid 0.0.9, and this Python module is of %s" % _abi.VERSION, said)

    def test_an_installed_tree_is_found_beside_the_module(self):
        for library_folder in ("lib", "lib/x86_64-linux-gnu", "lib64"):
            with tempfile.TemporaryDirectory() as prefix:
                site = os.path.join(prefix, "lib", "python3", "dist-packages")
                os.makedirs(site)
                os.makedirs(os.path.join(prefix, library_folder), exist_ok=True)
                os.symlink(os.path.join(rows.ROOT, "launch", "python", "kvgrid"), os.path.join(site, "kvgrid"))
                library = os.path.join(prefix, library_folder, "libkvgrid.so." + _abi.VERSION)
                os.symlink(os.path.realpath(kvgrid.lib.path), library)
                environment = {name: value for name, value in os.environ.items() if name != "KVGRID_LIBRARY"}
                environment["PYTHONPATH"] = site
                made = subprocess.run([sys.executable, "-c", "import kvgrid; print(kvgrid.lib.path)"], stdout=subprocess.PIPE, env=environment, check=True)
                self.assertEqual(made.stdout.decode().strip(), library)


class Names(unittest.TestCase):
    def test_constants_structs_and_functions_are_there_by_their_c_names(self):
        self.assertEqual((kvgrid.BF16, kvgrid.EREFUSED, kvgrid.CHUNK_ROWS), (3, 12, 64))
        self.assertEqual(kvgrid.format_name(kvgrid.Q8_0), "q8_0")
        bytes_ = ctypes.c_uint64()
        kvgrid.format_row_bytes(kvgrid.Q8_0, 64, ctypes.byref(bytes_))
        self.assertEqual(bytes_.value, 68)
        self.assertEqual(kvgrid.GRID_OPTIONS_INIT(pp=3).pp, 3)
        self.assertEqual(kvgrid.lib.kvg_swa_ring_rows(512, 262144), 5151)
        for name in ("nothing", "grid_made_up"):
            self.assertFalse(hasattr(kvgrid, name), name)
        self.assertIn("sequence_open", dir(kvgrid))
        self.assertEqual(kvgrid.__version__, kvgrid.lib.kvg_version(None, None, None).decode())

    def test_the_version_the_knobs_and_the_last_error_need_no_arguments(self):
        self.assertEqual(kvgrid.version(), kvgrid.__version__)
        with self.assertRaises(kvgrid.Error):
            kvgrid.format_parse("q9_9")
        self.assertIn("q9_9", kvgrid.last_error())
        self.assertEqual(len(kvgrid.knobs()), kvgrid.knob_count())
        status, said = python("import kvgrid; knob = kvgrid.knobs()['KVGRID_KV_K']; print(knob.value.decode(), knob.source.decode())", KVGRID_KV_K="bf16")
        self.assertEqual((status, said), (0, "bf16 KVGRID_KV_K\n"))

    def test_results_that_are_left_out_are_returned(self):
        self.assertEqual(kvgrid.format_parse("bf16"), kvgrid.BF16)
        self.assertEqual(kvgrid.format_row_bytes(kvgrid.Q8_0, 64), 68)
        self.assertEqual(kvgrid.kv_blk_bytes(), (34, 24))
        self.assertEqual(kvgrid.policy_default().timeout_ms, 30000)
        shard = kvgrid.head_shard(8, 16, 3)
        self.assertEqual((shard.first, shard.count, shard.replicas), (1, 1, 2))
        with self.assertRaises(kvgrid.Geometry):
            kvgrid.head_shard(8, 3, 0)
        with self.assertRaises(TypeError):
            kvgrid.head_shard(8, 16)
        ring = kvgrid.KvRing()
        kvgrid.kv_ring_init(ring, 64, 16)
        self.assertEqual(kvgrid.kv_ring_physical_range(ring, 3, 9), (3, 9))
        with kvgrid.Grid() as grid, kvgrid.ModelConfig(rows.MODEL) as config:
            self.assertEqual(kvgrid.cache_bytes_per_token(config), config.bytes_per_token())
            with kvgrid.dev_host() as device:
                kvgrid.dev_copy_range_into(device, None, 0, 0, None, 0, 0, 0, None)  # an object stands for its structure
            with self.assertRaisesRegex((ValueError, ctypes.ArgumentError), "this Device is closed"):
                kvgrid.dev_copy_range_into(device, None, 0, 0, None, 0, 0, 0, None)
            placement = grid.place(config, memory_bytes=16 << 20, max_sequences=2)
            sequence = placement.sequence_open(42)
            self.assertEqual(kvgrid.placement_layers(placement), (placement.layers.start, placement.layers.stop))
            self.assertEqual(kvgrid.sequence_info(sequence).id, 42)
            self.assertEqual(kvgrid.digest_hex(kvgrid.sequence_digest(sequence)), sequence.digest())
            self.assertEqual(kvgrid.stats(placement).taken_bytes, placement.stats().taken_bytes)

    def test_what_may_be_left_out_are_single_values_that_c_writes(self):
        """By the headers' words: no const, no array; what may be one of several stands in no list."""
        text = ""
        for folder in ("runtime", "tp", "pp", "kernels"):
            for place, _, names in os.walk(os.path.join(rows.ROOT, folder)):
                for name in sorted(names):
                    if name.endswith(".h"):
                        with open(os.path.join(place, name), encoding="utf-8") as file:
                            text += file.read()
        for name, count in _call.RESULTS.items():
            declared = re.search(r"KVG_API[^;(]*\bkvg_%s\(([^;]*)\)" % name, text)
            self.assertIsNotNone(declared, name)
            for argument in declared.group(1).split(",")[-count:]:
                self.assertRegex(argument.strip(), r"^[A-Za-z]\w* \*\w+$", name)
            for kind in _abi.FUNCTIONS["kvg_" + name][1][-count:]:
                self.assertTrue(issubclass(kind._type_, ctypes._SimpleCData) or kind._type_._fields_, name)

    def test_objects_and_structures_say_what_they_are(self):
        self.assertEqual(repr(kvgrid.KvRing(rows=64, window=16)), "KvRing(rows=64, window=16, base=0)")
        digest = kvgrid.KvDigest()
        self.assertEqual(repr(digest), "KvDigest(bytes=[0, 0, 0, 0, 0, 0, 0, 0, ...])")
        self.assertIn("policy=NULL", repr(kvgrid.GRID_OPTIONS_INIT()))
        self.assertIn("allgather=", repr(kvgrid.Bootstrap(0, 1, lambda mine, timeout_ms: [mine]).struct))
        self.assertIn("name='KVGRID_KV_K'", repr(kvgrid.knob_get(0)))
        with kvgrid.Grid() as grid, kvgrid.ModelConfig(rows.MODEL) as config, kvgrid.dev_host() as device:
            placement = grid.place(config, memory_bytes=16 << 20, max_sequences=2)
            sequence = placement.sequence_open(42, rows=10)
            self.assertEqual(repr(grid), "<kvgrid.Grid: rank 0 of 1, tp 1 x pp 1, epoch 1>")
            self.assertRegex(repr(config), r"^<kvgrid.ModelConfig .*: \d+ layers>$")
            self.assertEqual(repr(placement), "<kvgrid.Placement: layers 0 to %d, 2 sequences>" % (config.n_layer - 1))
            self.assertEqual(repr(sequence), "<kvgrid.Sequence 42: 0 rows of 64 booked>")
            self.assertEqual(repr(device), "<kvgrid.Device: host memory>")
            self.assertRegex(repr(sequence.info()), r"^KvgSequenceInfo\(id=42, rows=0, rows_staged=0, rows_booked=64, ")
        for closed in (grid, placement, sequence, config, device):
            self.assertEqual(repr(closed), "<kvgrid.%s: closed>" % type(closed).__name__)

    def test_a_config_is_made_of_one_thing(self):
        for given in ({}, {"path": rows.MODEL, "json": "{}"}, {"json": "{}", "gguf": b""}):
            with self.assertRaisesRegex(TypeError, "one of path, json and gguf"):
                kvgrid.ModelConfig(**given)

    def test_a_ledger_is_a_pure_function_here_too(self):
        with kvgrid.ModelConfig(rows.MODEL) as config:
            options = kvgrid.GRID_PLAN_OPTIONS_INIT(max_sequences=2)
            kvgrid.policy_default(options.sizing.policy)
            state = (ctypes.c_uint64 * 1)(64 << 20)
            options.state_bytes = state
            plan, ledger = kvgrid.KvGridPlan(), kvgrid.KvgLedger()
            ledger.size = ctypes.sizeof(ledger)
            kvgrid.grid_plan(config.struct, options, plan)
            kvgrid.ledger_init(plan, ledger)
            kvgrid.ledger_admit(ledger, 64)
            kvgrid.ledger_admit(ledger, 65)
            with self.assertRaises(kvgrid.Busy):
                kvgrid.ledger_admit(ledger, 1)
            with self.assertRaises(kvgrid.Capacity):
                kvgrid.ledger_check(ledger, 1 << 40)
            kvgrid.grid_plan_free(plan)


class Errors(unittest.TestCase):
    def test_each_status_has_its_class(self):
        self.assertEqual(sorted(kvgrid.BY_STATUS), list(range(1, kvgrid.STATUS_COUNT)))
        for status, made in kvgrid.BY_STATUS.items():
            self.assertTrue(issubclass(made, kvgrid.Error))
            self.assertEqual(made.__doc__, kvgrid.status_name(status))
        self.assertTrue(issubclass(kvgrid.NoMemory, MemoryError) and issubclass(kvgrid.Invalid, ValueError))

    def test_a_failure_carries_the_sentence_and_the_status(self):
        with self.assertRaises(kvgrid.InputOutput) as raised:
            kvgrid.ModelConfig("/nowhere/config.json")
        self.assertEqual(raised.exception.status, kvgrid.EIO)
        self.assertIn("/nowhere/config.json", str(raised.exception))
        self.assertEqual(str(raised.exception), kvgrid.last_error())
        again = pickle.loads(pickle.dumps(raised.exception))
        self.assertEqual((type(again), again.status, str(again)), (kvgrid.InputOutput, kvgrid.EIO, str(raised.exception)))
        with self.assertRaises(kvgrid.Geometry) as raised:
            kvgrid.tp_kv_rank_allocation_shape(1024, 1024, 3, kvgrid.Q8_0, kvgrid.Q5_1, kvgrid.TpKvRankAllocationShape())
        self.assertIn("3", str(raised.exception))
        with self.assertRaises(kvgrid.Malformed):
            kvgrid.ModelConfig(json="{")

    def test_the_last_error_is_each_threads_own(self):
        said = {}

        def fail(path):
            for _ in range(200):
                try:
                    kvgrid.ModelConfig(path)
                except kvgrid.Error as error:
                    said.setdefault(path, set()).add(path in str(error))
        threads = [threading.Thread(target=fail, args=("/nowhere/%d.json" % number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(list(said.values()), [{True}] * 4)

    def test_options_that_do_not_exist_are_refused(self):
        with self.assertRaises(TypeError):
            kvgrid.Grid(tpp=2)
        with kvgrid.Grid() as grid, kvgrid.ModelConfig(rows.MODEL) as config:
            with self.assertRaises(TypeError):
                grid.place(config, memory=1)
            for word in ("bf17", "zz", ""):
                with self.assertRaises(kvgrid.Invalid) as of_c:
                    kvgrid.format_parse(word)
                with self.assertRaises(kvgrid.Invalid) as of_place:
                    grid.place(config, format_k=word)
                self.assertEqual(str(of_place.exception), str(of_c.exception))
            with self.assertRaisesRegex(kvgrid.Invalid, r"'bf16\\0x' is no format"):
                grid.place(config, format_k="bf16\0x")
            with self.assertRaises(TypeError):
                kvgrid.ROWS_INIT(nothing=1)

    def test_cuda_is_refused_by_name_where_there_is_none(self):
        try:
            device = kvgrid.dev_cuda()
        except kvgrid.NotSupported as error:
            self.assertTrue("CUDA" in str(error) or "driver" in str(error), str(error))
        else:
            device.close()


class Callbacks(unittest.TestCase):
    def start(self, allgather, ranks=2):
        return kvgrid.Grid(kvgrid.Bootstrap(0, ranks, allgather), tp=ranks)

    def test_what_an_all_gather_raises_is_raised_by_the_call_that_asked(self):
        class Odd(Exception):
            pass

        def allgather(mine, timeout_ms):
            raise Odd("no frontend")
        try:
            self.start(allgather)
            self.fail("nothing was raised")
        except Odd as error:
            self.assertEqual(str(error), "no frontend")
            self.assertIsInstance(error.__context__, kvgrid.InputOutput)
            self.assertIn("allgather", [frame.name for frame in traceback.extract_tb(error.__traceback__)])
        kvgrid.Grid().close()  # nothing is left over

    def test_timeouts_and_lost_connections_have_their_statuses(self):
        for made, context in ((TimeoutError("late"), kvgrid.InDoubt), (ConnectionError("gone"), kvgrid.PeerLost), (KeyboardInterrupt(), kvgrid.InputOutput)):
            def allgather(mine, timeout_ms):
                raise made
            with self.assertRaises(type(made)) as raised:
                self.start(allgather)
            self.assertIsInstance(raised.exception.__context__, context)

    def test_parts_of_another_size_are_refused(self):
        for parts in ([b"x"], [b"x", b"yy"], [], [b"x" * 100000] * 2):
            with self.assertRaisesRegex(ValueError, "the all-gather gave"):
                self.start(lambda mine, timeout_ms: parts)

    def test_callbacks_live_as_long_as_what_calls_them(self):
        def made():
            def allgather(mine, timeout_ms):
                return [mine]
            return allgather, kvgrid.Bootstrap(0, 1, allgather)
        function, bootstrap = made()
        watch = weakref.ref(function)
        del function
        grid = kvgrid.Grid(bootstrap)
        self.assertEqual(bootstrap.allgather(b"abc"), [b"abc"])
        del bootstrap
        gc.collect()
        self.assertIsNotNone(watch())
        grid.close()
        del grid
        gc.collect()
        self.assertIsNone(watch())

    def test_the_log_is_heard_and_what_it_raises_is_raised(self):
        heard = []
        kvgrid.log_set(lambda level, sentence: heard.append((level, sentence)))
        try:
            kvgrid.lib.kvg_log(kvgrid.LOG_WARN, b"a sentence")
            self.assertEqual(heard, [(kvgrid.LOG_WARN, "a sentence")])

            def fail(level, sentence):
                raise KeyError(sentence)
            kvgrid.log_set(fail)
            kvgrid.lib.kvg_log(kvgrid.LOG_INFO, b"another")  # a raw call looks at nothing
            with kvgrid.Grid() as grid:
                with self.assertRaisesRegex(KeyError, "another"):
                    grid.progress()
                grid.progress()
        finally:
            kvgrid.log_set(None)
        kvgrid.lib.kvg_log(kvgrid.LOG_WARN, b"to nobody")
        self.assertEqual(len(heard), 1)


class Handles(unittest.TestCase):
    def test_closing_a_grid_closes_what_was_made_on_it(self):
        grid = kvgrid.Grid()
        config = kvgrid.ModelConfig(rows.MODEL)
        placement = grid.place(config, memory_bytes=16 << 20, max_sequences=2)
        config.close()
        batch = placement.batch_create(1)
        sequence = placement.sequence_open(1)
        snapshot = sequence.snapshot()
        grid.close()
        for closed in (grid, placement, batch, sequence, snapshot):
            closed.close()  # again: nothing
        for use in (lambda: grid.progress(), lambda: sequence.info(), lambda: batch.step_begin([0]), lambda: placement.stats(),
                    lambda: kvgrid.sequence_trim(sequence), lambda: grid.rank):
            with self.assertRaises((ValueError, ctypes.ArgumentError)) as raised:
                use()
            self.assertIn("is closed", str(raised.exception))

    def test_functions_take_the_objects(self):
        with kvgrid.Grid() as grid, kvgrid.ModelConfig(rows.MODEL) as config:
            placement = grid.place(config, memory_bytes=16 << 20, max_sequences=2)
            sequence = placement.sequence_open(1)
            kvgrid.sequence_book(sequence, 10)
            self.assertEqual(kvgrid.lib.kvg_grid_ranks(grid), 1)
            self.assertEqual(sequence.info().rows_booked, 64)
            with self.assertRaises(kvgrid.Invalid):
                kvgrid.sequence_rewind(sequence, 1)

    def test_a_model_without_rows_and_layers_of_other_ranks_are_refused(self):
        with kvgrid.Grid() as grid, kvgrid.ModelConfig(rows.MODEL) as config:
            placement = grid.place(config, memory_bytes=16 << 20, max_sequences=2)
            with self.assertRaises(kvgrid.Error):
                placement.view(1000)
            with self.assertRaises(ValueError):
                placement.batch_create(2).step_begin([1])

    def test_a_step_whose_grid_is_closed_says_so(self):
        with kvgrid.Grid() as grid, kvgrid.ModelConfig(rows.MODEL) as config:
            placement = grid.place(config, memory_bytes=16 << 20, max_sequences=2)
            batch = placement.batch_create(1)
            batch.set(0, placement.sequence_open(1))
            step = batch.step_begin([2])
        for use in (lambda: step.post(accept_all=True), step.wait, step.test, lambda: step.rows, lambda: step.first_rows, lambda: step.extend([1]),
                    lambda: step.refusal(0), step.local, lambda: step.number):
            with self.assertRaisesRegex((ValueError, ctypes.ArgumentError), "the grid of this step is closed"):
                use()

    def test_a_device_stays_open_under_its_placements(self):
        device = kvgrid.dev_host()
        with kvgrid.Grid() as grid, kvgrid.ModelConfig(rows.MODEL) as config:
            placements = [grid.place(config, device=device, memory_bytes=16 << 20, max_sequences=2),
                          grid.place_start(config, device=device, memory_bytes=16 << 20, max_sequences=2).wait()]
            for left, placement in zip((2, 1), placements):
                with self.assertRaisesRegex(BufferError, "%d placements" % left):
                    device.close()
                placement.close()
            device.close()
            device.close()
            for use in (device.synchronize, device.taken_bytes, lambda: grid.place(config, device=device, memory_bytes=16 << 20)):
                with self.assertRaisesRegex(ValueError, "this Device is closed"):
                    use()

    def test_a_handle_has_no_copies(self):
        with kvgrid.Grid() as grid, kvgrid.ModelConfig(rows.MODEL) as config, kvgrid.Inproc(1) as hub:
            placement = grid.place(config, memory_bytes=16 << 20, max_sequences=2)
            buffer = placement.view(0).len
            for thing in (grid, config, hub, placement, buffer):
                for copied in (copy.copy, copy.deepcopy, pickle.dumps):
                    with self.assertRaises(TypeError):
                        copied(thing)
            del buffer, thing

    def test_numbers_that_a_field_does_not_hold_are_refused(self):
        with kvgrid.Grid() as grid, kvgrid.ModelConfig(rows.MODEL) as config:
            placement = grid.place(config, memory_bytes=16 << 20, max_sequences=2)
            batch, sequence = placement.batch_create(1), placement.sequence_open((1 << 64) - 1)
            for use in (lambda: grid.place(config, memory_bytes=-1), lambda: grid.place(config, memory_bytes=1 << 64), lambda: kvgrid.Grid(tp=1 << 32),
                        lambda: kvgrid.BOOTSTRAP_INIT(rank=1 << 31), lambda: placement.batch_create((1 << 32) + 1), lambda: placement.sequence_open(-1),
                        lambda: placement.sequence_open(1 << 64), lambda: placement.sequence_open(2, -1), lambda: sequence.book(-1),
                        lambda: sequence.rewind(1 << 64), lambda: sequence.fork(0, 1 << 64), lambda: batch.set(1 << 32, sequence),
                        lambda: batch.step_begin([-1]), lambda: batch.step_begin([1 << 32]), lambda: placement.resize(-1),
                        lambda: placement.resize_start(1 << 64), lambda: placement.prepare(-1)):
                with self.assertRaises(OverflowError):
                    use()
            self.assertEqual((placement.stats().sequences_open, sequence.info().id), (1, (1 << 64) - 1))

    def test_lists_of_stages_and_layers_are_whole(self):
        with kvgrid.Grid() as grid, kvgrid.ModelConfig(rows.MODEL) as config:
            for fence in ([], [0], [0, 11, 22]):
                with self.assertRaisesRegex(ValueError, "for 2 ends of stages"):
                    grid.place(config, memory_bytes=16 << 20, fence=fence)
            for count in (0, config.n_layer - 1, config.n_layer + 1):
                with self.assertRaisesRegex(ValueError, "for 22 layers"):
                    grid.place(config, memory_bytes=16 << 20, layer_bytes=[1] * count)
            grid.place(config, memory_bytes=16 << 20, fence=[0, config.n_layer], layer_bytes=[1] * config.n_layer)

    def test_a_closed_bootstrap_is_not_one_rank_alone(self):
        fd = kvgrid.shm_memory(1)
        bootstrap = kvgrid.shm_bootstrap_create(fd=fd, ranks=1)
        os.close(fd)
        self.assertEqual(bootstrap.allgather(b"mine"), [b"mine"])
        bootstrap.close()
        bootstrap.close()
        for use in (lambda: kvgrid.Grid(bootstrap), lambda: bootstrap.allgather(b"mine")):
            with self.assertRaisesRegex((ValueError, ctypes.ArgumentError), "this Bootstrap is closed"):
                use()

    def test_a_hub_knows_its_ranks_and_closes_its_grids(self):
        hub = kvgrid.Inproc(2)
        for use in (hub.kill, hub.freeze):
            for rank in (-1, 2, 1 << 32):
                with self.assertRaisesRegex(ValueError, "of a hub of 2"):
                    use(rank)
        grids = kvgrid.grid_create_inproc(hub, tp=2)
        hub.close()
        hub.close()
        for use in (grids[0].progress, lambda: hub.kill(0), lambda: hub.freeze(0), lambda: kvgrid.grid_create_inproc(hub, tp=2)):
            with self.assertRaisesRegex(ctypes.ArgumentError, "is closed"):
                use()

    def test_a_set_up_that_its_owner_closed_says_so(self):
        with kvgrid.Inproc(2) as hub, kvgrid.ModelConfig(rows.MODEL) as config:
            grids = kvgrid.grid_create_inproc(hub, tp=2)
            setup = grids[0].place_start(config, memory_bytes=16 << 20, max_sequences=2)
            self.assertFalse(setup.test())
            grids[0].close()
            for use in (setup.test, setup.wait):
                with self.assertRaisesRegex(ValueError, "this Setup is closed"):
                    use()
            setup.close()

    def test_what_c_would_cut_short_or_call_is_looked_at(self):
        with self.assertRaisesRegex(ValueError, "NUL"):
            kvgrid.ModelConfig(rows.MODEL + "\0.json")
        with self.assertRaisesRegex(TypeError, "log_set"):
            kvgrid.log_set(3)
        config = kvgrid.ModelConfig(rows.MODEL)
        config.close()
        with self.assertRaisesRegex(ctypes.ArgumentError, "this ModelConfig is closed"):
            config.bytes_per_token()

    def test_logits_are_parked(self):
        with kvgrid.Grid() as grid, kvgrid.ModelConfig(rows.MODEL) as config:
            sequence = grid.place(config, memory_bytes=16 << 20, max_sequences=2).sequence_open(1)
            self.assertIsNone(sequence.parked_logits())
            sequence.park_logits([1.0, 2.5])
            self.assertEqual(sequence.parked_logits(), [1.0, 2.5])
            sequence.park_logits(None)
            self.assertIsNone(sequence.parked_logits())


if __name__ == "__main__":
    rows.main()
