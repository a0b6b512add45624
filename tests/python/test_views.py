"""Rows seen in place: NumPy, the buffer protocol and DLPack over the same bytes, and how long they may live."""
import ctypes
import gc
import sys
import unittest

import rows

numpy = rows.numpy_or_skip()
import kvgrid  # noqa: E402
from kvgrid import _dlpack  # noqa: E402



class Placed(unittest.TestCase):
    options = {"format_k": "bf16", "format_v": "bf16"}
    model = rows.MODEL
    prompt = 100

    def setUp(self):
        self.grid = kvgrid.Grid()
        with kvgrid.ModelConfig(self.model) as config:
            self.placement = self.grid.place(config, memory_bytes=64 << 20, max_sequences=3, **self.options)
        self.batch = self.placement.batch_create(2)
        self.sequences = [self.placement.sequence_open(id) for id in (1, 2)]
        for slot, sequence in enumerate(self.sequences):
            self.batch.set(slot, sequence)

    def tearDown(self):
        gc.collect()
        self.grid.close()

    def step(self, *counts):
        step = self.batch.step_begin(counts)
        rows.write_step(numpy, kvgrid, self.batch, step, (1, 2))
        step.post(accept_all=True)
        return step.wait()

    def written(self, id, il, plane, first, count, heads=4, dims=64):
        return rows.elements(numpy, id, il, plane, heads, 0, count, first, dims)


class Pools(Placed):
    def test_chunks_by_the_table_are_the_rows_that_were_written(self):
        self.step(100, 70)
        view = self.batch.plane_view(5)
        self.assertEqual((view.layer, view.owns, view.heads, view.rows_per_chunk, view.k.head_dim), (5, 1, 4, 64, 64))
        table, length, places = (numpy.asarray(words) for words in (view.table, view.len, self.batch.slots))
        for place, count in enumerate((100, 70)):
            slot = places[place]
            self.assertEqual(length[slot], count)
            for plane, number in ((view.k, kvgrid.PLANE_K), (view.v, kvgrid.PLANE_V)):
                chunks = numpy.asarray(plane.chunks)
                self.assertEqual(chunks.dtype, numpy.uint16)
                row = numpy.arange(count)
                seen = chunks[table[slot][row // 64], :, row % 64]  # [row][head][element]
                self.assertTrue((seen == self.written(place + 1, 5, number, 0, count)).all())
        self.assertEqual((numpy.asarray(view.base_row) == 0).all(), True)
        self.assertEqual(numpy.asarray(view.len_staged)[places[0]], 100)

    def test_runs_of_a_slot_are_the_same_rows(self):
        self.step(100, 0)
        view = self.placement.view(0)
        slot = self.sequences[0].info().slot
        pieces = [(row, numpy.asarray(piece)) for row, piece in view.v.runs(slot, 10, 100)]
        self.assertEqual([(row, piece.shape) for row, piece in pieces], [(10, (4, 54, 64)), (64, (4, 36, 64))])
        seen = numpy.concatenate([piece for _, piece in pieces], axis=1).transpose(1, 0, 2)
        self.assertTrue((seen == self.written(1, 0, kvgrid.PLANE_V, 10, 90)).all())
        with self.assertRaisesRegex(ValueError, "not held"):
            list(view.v.runs(slot, 128, 129))
        with self.assertRaisesRegex(ValueError, "chunks"):
            view.k.slot(slot, 1)

    def test_slots_and_rows_that_are_not_there_are_refused(self):
        self.step(100, 70)
        k = self.placement.view(5).k
        for slot in (-1, 3, 1 << 40):
            with self.assertRaisesRegex(ValueError, "this placement has 3"):
                list(k.runs(slot, 0, 1))
        slot = self.sequences[0].info().slot
        for row, why in ((-1, "count from 0"), (1 << 20, "is not held"), (128, "is not held")):
            with self.assertRaisesRegex(ValueError, why):
                list(k.runs(slot, row, row + 1))

    def test_what_is_written_through_a_view_is_in_the_digest(self):
        self.step(3, 3)
        before = self.sequences[0].digest()
        row = self.sequences[0].row(7, kvgrid.PLANE_K, 2, 1)
        numpy.asarray(row)[5] ^= 1
        self.assertNotEqual(self.sequences[0].digest(), before)
        row.memory[5] ^= 1
        self.assertEqual(self.sequences[0].digest(), before)
        del row

    def test_rows_written_in_place_of_write_kv_have_the_same_digest(self):
        """An engine's own kernel: plan, write through the view, post."""
        self.step(70, 0)
        step = self.batch.step_begin([0, 70])
        for il in self.placement.layers:
            view = self.batch.plane_view(il)
            for plane, number in ((view.k, kvgrid.PLANE_K), (view.v, kvgrid.PLANE_V)):
                made = self.written(1, il, number, 0, 70)
                for first, piece in plane.runs(self.sequences[1].info().slot, 0, 70):
                    into = numpy.asarray(piece)
                    into[:] = made[first:first + into.shape[1]].transpose(1, 0, 2)
        del into, piece
        step.post(accept_all=True)
        self.assertEqual(step.wait().accepted, [0, 70])
        self.assertEqual(self.sequences[1].digest(), self.sequences[0].digest())

    def test_the_buffer_protocol_shows_whole_planes(self):
        self.step(4, 0)
        view = self.placement.view(1)
        chunks = view.k.chunks
        memory = chunks.memory
        self.assertEqual((memory.format, memory.shape, memory.readonly), ("H", chunks.shape, False))
        chunk = numpy.asarray(view.table)[0][0]
        self.assertEqual(memory[int(chunk), 3, 2, 9], int(self.written(1, 1, 0, 2, 1)[0, 3, 9]))
        self.assertEqual(ctypes.addressof(chunks.array), view.k.chunks.address)
        self.assertEqual(memoryview(chunks.array).nbytes, memory.nbytes)
        if sys.version_info >= (3, 12):
            self.assertEqual(memoryview(chunks).shape, chunks.shape)
        piece = next(iter(view.k.runs(0, 0, 3)))[1]
        self.assertFalse(piece.contiguous)
        with self.assertRaisesRegex(BufferError, "gaps"):
            piece.array

    def test_a_fork_shows_its_sources_chunk(self):
        self.step(100, 0)
        fork = self.sequences[0].fork(80, id=9)
        view = self.placement.view(0)
        table = numpy.asarray(view.table)
        one, other = (table[sequence.info().slot] for sequence in (self.sequences[0], fork))
        self.assertEqual(one[0], other[0])
        self.assertNotEqual(one[1], other[1])
        self.assertTrue((numpy.asarray(view.k.chunks)[other[1], :, :16] == numpy.asarray(view.k.chunks)[one[1], :, :16]).all())

    def test_read_decodes(self):
        self.step(5, 0)
        seen = numpy.asarray(self.sequences[0].read(3, kvgrid.PLANE_K, 1, 4))
        made = self.written(1, 3, kvgrid.PLANE_K, 1, 4).astype(numpy.uint32) << 16
        self.assertTrue((seen.view(numpy.uint32) == made).all())


class Lifetimes(Placed):
    def test_a_placement_stays_open_while_its_memory_is_seen(self):
        array = numpy.asarray(self.placement.view(0).k.chunks)
        with self.assertRaisesRegex(BufferError, "1 views"):
            self.placement.close()
        with self.assertRaises(BufferError):
            self.grid.close()
        array[0, 0, 0, 0] = 1
        self.assertEqual(self.placement.stats().sequences_open, 2)
        part = array[1:2]
        del array
        gc.collect()
        with self.assertRaises(BufferError):
            self.placement.close()
        del part
        gc.collect()
        self.placement.close()

    def test_a_view_says_that_its_placement_is_closed(self):
        self.step(5, 0)
        view = self.placement.view(0)
        slot = self.sequences[0].info().slot
        self.placement.close()
        self.assertEqual((view.layer, view.heads, view.k.head_dim), (0, 4, 64))
        for use in (lambda: view.table, lambda: view.len, lambda: view.len_staged, lambda: view.base_row, lambda: list(view.k.runs(slot, 0, 1))):
            with self.assertRaisesRegex(ValueError, "is closed"):
                use()
        with self.assertRaisesRegex(ctypes.ArgumentError, "this Placement is closed"):
            view.k.chunks

    def test_memoryviews_and_tensors_count_too(self):
        memory = self.placement.view(0).k.chunks.memory
        with self.assertRaises(BufferError):
            self.placement.close()
        memory.release()
        del memory
        gc.collect()
        capsule = self.placement.view(0).k.chunks.__dlpack__()
        with self.assertRaises(BufferError):
            self.placement.close()
        del capsule
        gc.collect()
        self.placement.close()

    def test_an_exception_is_not_hidden_by_a_view_that_is_alive(self):
        grid = kvgrid.Grid()
        with self.assertRaises(ZeroDivisionError):
            with kvgrid.ModelConfig(rows.MODEL) as config, grid, grid.place(config, memory_bytes=16 << 20, max_sequences=2) as placement:
                array = numpy.asarray(placement.view(0).k.chunks)
                array[0] = 1 // 0
        array = None
        gc.collect()
        grid.close()


class Consumer:
    """A DLPack consumer by ctypes: takes the capsule as PyTorch and JAX do."""
    USED = {b"dltensor": b"used_dltensor", b"dltensor_versioned": b"used_dltensor_versioned"}  # a capsule keeps the name's address alone

    def __init__(self, capsule):
        valid, rename = ctypes.pythonapi.PyCapsule_IsValid, ctypes.pythonapi.PyCapsule_SetName
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        for function in (valid, rename, pointer):
            function.argtypes = [ctypes.py_object, ctypes.c_char_p]
        pointer.restype = ctypes.c_void_p
        self.versioned = bool(valid(capsule, b"dltensor_versioned"))
        name = b"dltensor_versioned" if self.versioned else b"dltensor"
        self.address = pointer(capsule, name)
        rename(capsule, self.USED[name])
        self.managed = (_dlpack.DLManagedTensorVersioned if self.versioned else _dlpack.DLManagedTensor).from_address(self.address)
        self.tensor = self.managed.tensor

    def delete(self):
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.managed.deleter)(self.address)


class DlPack(Placed):
    def consume(self, **asked):
        buffer = self.placement.view(2).v.chunks
        self.assertEqual(buffer.__dlpack_device__(), (1, 0))
        return buffer, Consumer(buffer.__dlpack__(**asked))

    def test_capsules_say_where_what_and_how_far_apart(self):
        for asked, versioned in (({}, False), ({"max_version": (0, 8)}, False), ({"max_version": (1, 0)}, True), ({"max_version": (1, 3)}, True)):
            buffer, consumer = self.consume(**asked)
            tensor = consumer.tensor
            self.assertEqual(consumer.versioned, versioned)
            if versioned:
                self.assertEqual((consumer.managed.major, consumer.managed.minor, consumer.managed.flags), (1, 0, 0))
            self.assertEqual((tensor.data, tensor.byte_offset), (buffer.address, 0))
            self.assertEqual((tensor.device_type, tensor.device_id), (1, 0))
            self.assertEqual((tensor.code, tensor.bits, tensor.lanes), (4, 16, 1))  # kDLBfloat
            self.assertEqual((tuple(tensor.shape[:4]), tuple(tensor.strides[:4])), (buffer.shape, buffer.strides))
            held = _dlpack.held()
            del buffer, tensor
            gc.collect()
            with self.assertRaises(BufferError):
                self.placement.close()
            consumer.delete()
            self.assertEqual(_dlpack.held(), held - 1)
            gc.collect()
            self.assertEqual(self.placement._owner.alive(), 0)

    def test_a_capsule_that_nobody_takes_is_freed(self):
        held = _dlpack.held()
        for asked in ({}, {"max_version": (1, 0)}):
            capsule = self.placement.view(2).v.chunks.__dlpack__(**asked)
            self.assertEqual(_dlpack.held(), held + 1)
            del capsule
            self.assertEqual(_dlpack.held(), held)

    def test_copies_streams_and_other_devices_are_refused(self):
        buffer = self.placement.view(2).v.chunks
        for asked in ({"copy": True}, {"stream": 1}, {"dl_device": (2, 0)}):
            with self.assertRaises(BufferError):
                buffer.__dlpack__(**asked)
        buffer.__dlpack__(copy=False, dl_device=(1, 0))

    def test_numpy_takes_it_in_place(self):
        self.step(4, 0)
        buffer = self.placement.view(2).v.chunks
        array = numpy.from_dlpack(buffer.bits)
        self.assertEqual((array.shape, array.dtype, array.ctypes.data), (buffer.shape, numpy.uint16, buffer.address))
        chunk = numpy.asarray(self.placement.view(2).table)[0][0]
        self.assertTrue((array[chunk, :, :4].transpose(1, 0, 2) == self.written(1, 2, kvgrid.PLANE_V, 0, 4)).all())
        if tuple(int(part) for part in numpy.__version__.split(".")[:2]) >= (2, 1):  # older ones make every such array read-only
            before = self.sequences[0].digest()
            array[chunk, 0, 0, 0] ^= 1
            self.assertNotEqual(self.sequences[0].digest(), before)


class BlockFormats(Placed):
    options = {"format_k": "q8_0", "format_v": "fp8"}

    def step(self, *counts):
        step = self.batch.step_begin(counts)
        tokens = sum(step.rows)
        for il in self.placement.layers:
            made = numpy.full((tokens, 4, 64), 2.0, numpy.float32)
            self.batch.write_kv(il, made, made)
        step.post(accept_all=True)
        return step.wait()

    def test_heads_are_bytes(self):
        self.step(3, 0)
        view = self.placement.view(0)
        k, v = view.k.chunks, view.v.chunks
        self.assertEqual((k.kind.name, k.shape[-1], v.kind.name, v.shape[-1]), ("u8", 68, "u8", 64))
        chunk = numpy.asarray(view.table)[0][0]
        blocks = numpy.asarray(k)[chunk, 0, 0].reshape(2, 34)
        self.assertTrue((blocks[:, 2:].view(numpy.int8) == 127).all())
        self.assertTrue((numpy.asarray(v)[chunk, 3, 2] == 0x40).all())  # 2.0 in e4m3


class Flat(Placed):
    options = {"format_k": "f16", "format_v": "bf16", "layout": "flat"}

    def test_a_slots_plane_is_rows_of_heads(self):
        step = self.batch.step_begin([5, 6])
        made = numpy.arange(11 * 4 * 64, dtype=numpy.float32).reshape(11, 4, 64)
        for il in self.placement.layers:
            self.batch.write_kv(il, made, made)
        step.post(accept_all=True)
        step.wait()
        view = self.placement.view(4)
        self.assertEqual(view.rows_per_chunk, 0)
        self.assertIsNone(view.table)
        with self.assertRaisesRegex(ValueError, "no chunks"):
            view.k.chunks
        slot = self.sequences[1].info().slot
        for bad in ((-1, 1), (3, 1), (slot, -1), (slot, view.ring_rows + 1)):
            with self.assertRaises(ValueError):
                view.k.slot(*bad)
        plane = numpy.asarray(view.k.slot(slot, 6))
        self.assertEqual(plane.dtype, numpy.float16)
        self.assertTrue((plane == made[5:].astype(numpy.float16)).all())
        (first, piece), = view.k.runs(slot, 2, 6)
        self.assertEqual(first, 2)
        self.assertTrue((numpy.asarray(piece).transpose(1, 0, 2) == made[7:].astype(numpy.float16)).all())


class Inputs(Placed):
    """What write_kv takes, and what it refuses before C is asked."""

    def digest_of(self, k, v, **more):
        step = self.batch.step_begin([2, 0])
        for il in self.placement.layers:
            self.batch.write_kv(il, k, v, **more)
        step.post(accept_all=True)
        step.wait()
        made = self.sequences[0].digest()
        self.sequences[0].rewind(0)
        return made

    def test_arrays_buffers_and_addresses_are_the_same(self):
        made = (numpy.arange(2 * 4 * 64, dtype=numpy.float32) % 101 * 0.5).reshape(2, 4, 64)  # bf16 has all of them
        bits = (made.view(numpy.uint32) >> 16).astype(numpy.uint16)
        expected = self.digest_of(made, made)
        self.assertEqual(self.digest_of(bits, bits), expected)
        self.assertEqual(self.digest_of(made.reshape(2, 256), made), expected)
        self.assertEqual(self.digest_of(made.astype(numpy.float16), made.astype(numpy.float16)), expected)
        self.assertEqual(self.digest_of(bits.ctypes.data, bits.ctypes.data, dtype="bf16"), expected)
        self.assertEqual(self.digest_of((ctypes.c_float * 64 * 4 * 2).from_buffer(made), made), expected)
        wide = numpy.zeros((2, 5, 128), numpy.float32)
        wide[:, 1:, 64:] = made
        self.assertEqual(self.digest_of(wide[:, 1:, 64:], made), expected)
        swapped = numpy.ascontiguousarray(made.transpose(1, 0, 2)).transpose(1, 0, 2)
        self.assertEqual(self.digest_of(swapped, swapped), expected)
        spread = numpy.zeros((9, 4, 64), numpy.float32)
        spread[7:] = made
        self.assertEqual(self.digest_of(spread, spread, first_token=[7, 0]), expected)

    def test_shapes_that_do_not_fit_are_refused_by_name(self):
        step = self.batch.step_begin([2, 0])
        good = numpy.zeros((2, 4, 64), numpy.float32)
        for k, v, sentence in ((good[:1], good, "k has 1 tokens, and 2 are written"), (good, good[:, :3], "v has shape"), (good[:, :, ::2], good, "k has shape"),
                               (good.astype(numpy.float64), good, "float32"), (good, good.astype(numpy.float16), "one element type"),
                               (1234, 1234, "dtype"), (bytes(2048), good, "'B'")):
            with self.assertRaisesRegex((ValueError, TypeError), sentence):
                self.batch.write_kv(0, k, v)
        with self.assertRaises(kvgrid.Invalid):
            self.batch.write_kv(22, good, good)
        step.post(refuse=kvgrid.EINVAL)
        with self.assertRaises(kvgrid.Refused):
            step.wait()
        with self.assertRaises(kvgrid.Stale):
            self.batch.write_kv(0, good, good)

    def test_a_place_that_is_left_out_says_why(self):
        step = self.batch.step_begin([1 << 20, 0])
        self.assertIsInstance(step.refusal(0), kvgrid.Capacity)
        self.assertIsNone(step.refusal(1))
        self.assertIsNone(step.local())
        self.assertEqual(step.rows, [0, 0])
        step.post(accept_all=True)
        self.assertEqual(step.wait().accepted, [0, 0])

    def test_snapshots_roll_back(self):
        made = numpy.ones((3, 4, 64), numpy.float32)
        expected = self.digest_of(made, made)
        self.digest_of(made, made)
        with self.sequences[0].snapshot() as snapshot:
            step = self.batch.step_begin([3, 0])
            for il in self.placement.layers:
                self.batch.write_kv(il, made, made)
            step.post(accept_all=True)
            step.wait()
            self.assertTrue(self.sequences[0].can_rollback(snapshot, 2))
            self.sequences[0].rollback(snapshot, 2)
        self.assertEqual(self.sequences[0].digest(), expected)

    def test_rows_are_brought_back_into_a_fresh_sequence(self):
        made = numpy.ones((2, 4, 64), numpy.float32)
        expected = self.digest_of(made, made)
        back = self.placement.sequence_open(5, rows=2)
        for il in self.placement.layers:
            back.fill_kv(il, 0, 2, made, made)
        back.restore(2)
        self.assertEqual(back.digest(), expected)


class OtherKinds(unittest.TestCase):
    def placed(self, name, **options):
        self.grid = kvgrid.Grid()
        self.addCleanup(self.grid.close)
        with kvgrid.ModelConfig(rows.MODEL.replace("tinyllama-1.1b", name)) as config:
            placement = self.grid.place(config, memory_bytes=1 << 30, max_sequences=2, ctx=512, **options)
            layers = config.layers
        batch = placement.batch_create(1)
        sequence = placement.sequence_open(1)
        batch.set(0, sequence)
        return placement, batch, sequence, layers

    def test_latent_rows(self):
        placement, batch, sequence, layers = self.placed("kimi-k2")
        self.assertEqual({layer.kind for layer in layers[:61]}, {kvgrid.STATE_LATENT})
        width = layers[0].u.latent.width
        made = numpy.arange(3 * width, dtype=numpy.float32).reshape(3, width)
        step = batch.step_begin([3])
        for il in placement.layers:
            batch.write_latent(il, made)
        with self.assertRaisesRegex(ValueError, "latent has 2 tokens"):
            batch.write_latent(0, made[:2])
        step.post(accept_all=True)
        step.wait()
        view = batch.latent_view(1)
        (first, piece), = view.latent.runs(sequence.info().slot, 0, 3)
        self.assertTrue((numpy.asarray(piece)[0] == made).all())
        self.assertIsNone(view.ring)
        del piece

    def test_recurrent_columns(self):
        placement, batch, sequence, layers = self.placed("nemotron-3-nano-30b-a3b")
        il = next(il for il in placement.layers if layers[il].kind == kvgrid.STATE_RECURRENT)
        asked = []

        def fill(layer, slot, row, x, u):
            asked.append((layer, slot, row))
            numpy.frombuffer(x, numpy.float32)[:] = row + 1
            numpy.frombuffer(u, numpy.float32)[:] = 2
        step = batch.step_begin([2])
        for layer in placement.layers:
            if layers[layer].kind == kvgrid.STATE_RECURRENT:
                batch.recurrent_update(layer, fill, decay=0.5)
        step.post(accept_all=True)
        step.wait()
        self.assertEqual(asked[:2], [(il, 0, 0), (il, 0, 1)])
        view = batch.recurrent_view(il)
        slot = sequence.info().slot
        state = numpy.asarray(view.state)[slot, numpy.asarray(view.read)[slot]]
        self.assertEqual(state.shape, (view.state_elements,))
        self.assertEqual(len(set(state.tolist())), 1)
        self.assertNotEqual(state[0], 0)
        step = batch.step_begin([1])

        def fail(layer, slot, row, x, u):
            raise LookupError("no inputs for row %d" % row)
        with self.assertRaisesRegex(LookupError, "row 2"):
            batch.recurrent_update(il, fail)
        step.post(refuse=kvgrid.EIO)
        with self.assertRaises(kvgrid.Refused):
            step.wait()


if __name__ == "__main__":
    rows.main()
