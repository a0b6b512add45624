"""PyTorch in host memory: rows written and read in place through DLPack."""
import gc
import unittest

import rows

torch = rows.torch_or_skip()
import kvgrid  # noqa: E402
import torch_rows  # noqa: E402


class Torch(unittest.TestCase):
    def test_rows_given_as_tensors_and_rows_written_in_place_have_the_digests_of_c(self):
        expected = torch_rows.numbers_of_c()
        for in_place in (False, True):
            engine = torch_rows.Engine(torch, in_place=in_place)
            self.assertEqual(engine.run(), expected)
            engine.close()

    def test_a_tensor_is_the_memory_itself_and_keeps_it(self):
        grid = kvgrid.Grid()
        with kvgrid.ModelConfig(rows.MODEL) as config:
            placement = grid.place(config, memory_bytes=16 << 20, max_sequences=2, format_k="f16", format_v="fp8")
        view = placement.view(3)
        k, v = torch.from_dlpack(view.k.chunks), torch.from_dlpack(view.v.chunks)
        self.assertEqual((k.dtype, v.dtype, k.data_ptr(), tuple(k.shape)), (torch.float16, torch.uint8, view.k.chunks.address, view.k.chunks.shape))
        k[0, 1, 2, 3] = 1.5
        self.assertEqual(view.k.chunks.memory[0, 1, 2, 3], 0x3e00)
        with self.assertRaises(BufferError):
            grid.close()
        part = k[0, 1].t()
        del k, v
        gc.collect()
        with self.assertRaises(BufferError):
            grid.close()
        del part, view
        gc.collect()
        grid.close()


if __name__ == "__main__":
    rows.main()
