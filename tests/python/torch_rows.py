"""What test_torch.py does in host memory, and test_torch_cuda.py on a GPU: rows written and read in place by PyTorch, digests those of C's rows."""
import gc
import os
import subprocess

import rows
import kvgrid

IDS = (1, 2)


def elements(torch, device, id, il, plane, heads, rows_, first, dims):
    """bf16 [rows][heads][dims] by reference.c's formula."""
    def axis(count, begin=0):
        return torch.arange(begin, begin + count, dtype=torch.int64, device=device)
    row, head, dim = axis(rows_, first)[:, None, None], axis(heads)[None, :, None], axis(dims)[None, None, :]
    bits = 0x3f80 + ((row * 131 + il * 31 + plane * 17 + head * 7 + dim * 3 + id * 13) & 0x3ff)
    return bits.to(torch.int16).view(torch.bfloat16)


def numbers_of_c():
    text = subprocess.run([os.path.join(rows.BUILD, "tests", "python_reference"), rows.MODEL], stdout=subprocess.PIPE, check=True).stdout.decode()
    return text.split()


class Engine:
    """reference.c's program with tensors; rows go in by write_kv, or in place through the views by the table, as an engine's own kernel would."""

    def __init__(self, torch, device=None, in_place=False, **options):
        self.torch, self.in_place, self.device = torch, in_place, device
        self.where = "cpu" if device is None else "cuda:%d" % device.kind[1]
        self.grid = kvgrid.Grid()
        with kvgrid.ModelConfig(rows.MODEL) as config:
            self.placement = self.grid.place(config, device=device, memory_bytes=128 << 20, max_sequences=4, format_k="bf16", format_v="bf16", **options)
        self.batch = self.placement.batch_create(2)
        self.planes = {}
        for il in self.placement.layers:
            view = self.placement.view(il)
            self.planes[il] = tuple(torch.from_dlpack(plane.chunks) for plane in (view.k, view.v))
        view = self.placement.view(0)
        self.table = torch.from_dlpack(view.table)
        self.places = torch.from_dlpack(self.batch.slots)
        self.len, self.len_staged = torch.from_dlpack(view.len), torch.from_dlpack(view.len_staged)
        self.heads, self.dims = view.heads, view.k.head_dim

    def stream(self):
        return self.torch.cuda.current_stream().cuda_stream if self.device is not None else None

    def made(self, il, number, step):
        return [elements(self.torch, self.where, IDS[place], il, number, self.heads, count, first, self.dims)
                for place, (count, first) in enumerate(zip(step.rows, step.first_rows)) if count]

    def write(self, il, step):
        torch = self.torch
        if not self.in_place:
            k, v = (torch.cat(self.made(il, number, step)) for number in (0, 1))
            self.batch.write_kv(il, k, v, stream=self.stream())
            return
        for place, (count, first) in enumerate(zip(step.rows, step.first_rows)):
            if count == 0:
                continue
            row = torch.arange(first, first + count, device=self.where)
            chunk = self.table[self.places[place].long()][row >> 6].long()
            for plane, number in zip(self.planes[il], (0, 1)):
                plane[chunk, :, row % 64] = elements(torch, self.where, IDS[place], il, number, self.heads, count, first, self.dims)

    def step(self, counts, accepted=None, refuse=kvgrid.OK):
        step = self.batch.step_begin(counts)
        if self.device is not None:
            self.device.synchronize()  # tables and lengths go by a stream of the device's own, which torch's does not wait for
        for il in self.placement.layers:
            self.write(il, step)
        if self.device is not None:
            self.torch.cuda.synchronize()  # rows by torch's stream before the device's own reads of them
        step.post(accepted, accept_all=accepted is None, refuse=refuse)
        return step.wait()

    def run(self):
        first = self.placement.sequence_open(1)
        self.batch.set(0, first)
        self.step([70, 0])
        for _ in range(3):
            self.step([1, 0])
        assert self.step([4, 0], [2, 0]).accepted == [2, 0]
        try:
            self.step([3, 0], refuse=kvgrid.EIO)
            raise AssertionError("published")
        except kvgrid.Refused:
            pass
        second = first.fork(66, id=2)
        self.batch.set(1, second)
        self.step([5, 2])
        digests = [first.digest(), second.digest()]
        self.seen(first, 0, 80)
        self.seen(second, 1, 68, 66)
        return digests

    def seen(self, sequence, place, count, foreign=0):
        """What the views show is what was written; rows below `foreign` are the fork's source's."""
        torch = self.torch
        self.placement.flush(self.stream())
        if self.device is not None:
            self.device.synchronize()
        slot = sequence.info().slot
        assert int(self.len[slot]) == count and int(self.places[place]) == slot, (self.len, self.places)
        row = torch.arange(count, device=self.where)
        chunk = self.table[slot][row >> 6].long()
        for il, planes in self.planes.items():
            for plane, number in zip(planes, (0, 1)):
                got = plane[chunk, :, row % 64]
                want = elements(torch, self.where, IDS[place], il, number, self.heads, count, 0, self.dims)
                if foreign:
                    want[:foreign] = elements(torch, self.where, IDS[0], il, number, self.heads, foreign, 0, self.dims)
                assert torch.equal(got.view(torch.int16), want.view(torch.int16)), (il, number)

    def close(self):
        self.planes = self.table = self.places = self.len = self.len_staged = None
        gc.collect()
        self.grid.close()
