"""bisect over a virtual list, from a large bound."""

from bisect import bisect_right


class Needs:
    def __init__(self, ask):
        self.ask = ask

    def __len__(self):
        return 2**30

    def __getitem__(self, place):
        return self.ask(place + 1)


def largest_micro_batch(bytes_needed, gpu_bytes):
    return bisect_right(Needs(bytes_needed), gpu_bytes)
