"""PyTorch on a GPU: the state in its memory, rows written and read in place by torch's kernels, digests those of the host's rows written by C.

Needs a build with CUDA (KVGRID_LIBRARY=build/libkvgrid_gpu.so), a GPU, and python3 with torch."""
import gc
import unittest

import rows

torch = rows.torch_or_skip()
if not torch.cuda.is_available():
    rows.skip("torch %s finds no GPU" % torch.__version__)
import kvgrid  # noqa: E402
import torch_rows  # noqa: E402

try:
    kvgrid.dev_cuda(0).close()
except kvgrid.NotSupported as error:
    rows.skip(str(error))


class TorchCuda(unittest.TestCase):
    def setUp(self):
        self.device = kvgrid.dev_cuda(0)
        self.addCleanup(self.device.close)

    def test_rows_given_as_tensors_and_rows_written_in_place_have_the_hosts_digests(self):
        expected = torch_rows.numbers_of_c()
        for in_place in (False, True):
            engine = torch_rows.Engine(torch, self.device, in_place)
            self.assertEqual(engine.run(), expected, "in place" if in_place else "by write_kv")
            engine.close()

    def placed(self, **options):
        grid = kvgrid.Grid()
        with kvgrid.ModelConfig(rows.MODEL) as config:
            return grid, grid.place(config, device=self.device, memory_bytes=512 << 20, max_sequences=2, **options)

    def test_tensors_are_on_the_device_of_their_formats_and_keep_the_placement(self):
        grid, placement = self.placed(format_k="f16", format_v="fp8")
        buffer = placement.view(3).k.chunks
        self.assertEqual(buffer.__dlpack_device__(), (2, 0))
        k, v = torch.from_dlpack(buffer), torch.from_dlpack(placement.view(3).v.chunks)
        self.assertEqual((k.device.type, k.dtype, v.dtype, k.data_ptr()), ("cuda", torch.float16, torch.uint8, buffer.address))
        for see in (lambda: buffer.memory, lambda: buffer.array, lambda: next(placement.view(3).k.runs(0, 0, 1))):
            with self.assertRaises((BufferError, ValueError)):
                see()
        del buffer
        gc.collect()
        with self.assertRaises(BufferError):
            grid.close()
        del k, v
        gc.collect()
        grid.close()

    def test_arrays_of_the_host_are_refused(self):
        grid, placement = self.placed(format_k="bf16", format_v="bf16")
        batch = placement.batch_create(1)
        batch.set(0, placement.sequence_open(1))
        step = batch.step_begin([1])
        with self.assertRaisesRegex(ValueError, "memory of the host"):
            batch.write_kv(0, torch.zeros(1, 4, 64), torch.zeros(1, 4, 64))
        step.post(refuse=kvgrid.EINVAL)
        with self.assertRaises(kvgrid.Refused):
            step.wait()
        grid.close()

    def test_a_captured_step_is_replayed_with_torchs_rows(self):
        """The graph reads k and v at fixed addresses; torch refills them on the same stream between replays."""
        grid, placement = self.placed(format_k="bf16", format_v="bf16")
        batch = placement.batch_create(1)
        sequence = placement.sequence_open(1)
        batch.set(0, sequence)
        stream = torch.cuda.Stream()
        inputs = {il: tuple(torch.zeros(1, 4, 64, dtype=torch.bfloat16, device="cuda") for _ in range(2)) for il in placement.layers}
        torch.cuda.synchronize()
        batch.capture_begin(stream.cuda_stream, rows=[1])
        for il, (k, v) in inputs.items():
            batch.write_kv(il, k, v, stream=stream.cuda_stream)
        graph = batch.capture_end()
        graph.run_begin(5, stream=stream.cuda_stream)
        with torch.cuda.stream(stream):
            for row in range(5):
                for il, planes in inputs.items():
                    for number, plane in enumerate(planes):
                        plane.copy_(torch_rows.elements(torch, "cuda", 1, il, number, 4, 1, row, 64))
                graph.launch(stream.cuda_stream)
        self.assertEqual(graph.run_end(stream.cuda_stream).published, 5)
        captured = sequence.digest()

        other = placement.sequence_open(2)
        batch.set(0, other)
        step = batch.step_begin([5])
        for il in placement.layers:
            k, v = (torch_rows.elements(torch, "cuda", 1, il, number, 4, 5, 0, 64) for number in (0, 1))
            batch.write_kv(il, k, v, stream=torch.cuda.current_stream().cuda_stream)
        torch.cuda.synchronize()
        step.post(accept_all=True)
        step.wait()
        self.assertEqual(other.digest(), captured)
        graph.close()
        self.device.synchronize()
        kvgrid.cuda_forget_stream(self.device.struct, stream.cuda_stream)
        grid.close()


if __name__ == "__main__":
    rows.main()
