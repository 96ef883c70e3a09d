"""From the largest distance down, with isend and irecv, each waited for; ends with a barrier."""

import torch.distributed as dist


def broadcast(tensor, src=0):
    rank, n = dist.get_rank(), dist.get_world_size()
    me = (rank - src) % n
    distance = 1
    while distance < n:
        distance *= 2
    buffer = tensor.clone()
    while distance >= 1:
        if me % (2 * distance) == 0 and me + distance < n:
            dist.isend(buffer, (me + distance + src) % n).wait()
        elif me % (2 * distance) == distance:
            dist.irecv(buffer, (me - distance + src) % n).wait()
        distance //= 2
    tensor.copy_(buffer)
    dist.barrier()
