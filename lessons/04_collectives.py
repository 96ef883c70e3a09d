# %% [markdown]
# # 04 · Collectives: from send and receive to the ring
#
# {{badges}}
#
# Every distributed training run spends part of its time in a handful of collectives. Here you build them from
# the two calls below them all, send and receive: broadcast, all-gather, reduce-scatter, and from these the
# ring all-reduce that made data parallelism cheap. Then you measure your machine, and predict the time of a
# ring before you run it.
#
# **After this lesson you can**
#
# - find the deadlock in a handful of sends and receives, and write the same without it;
# - broadcast to n ranks in ⌈log₂ n⌉ rounds: 6 for 64 ranks, where a loop over them takes 63;
# - write a ring all-reduce in which each rank sends 2(n−1)/n times the tensor's size: 1.5 times at 4 ranks,
#   never 2 times, however many there are;
# - fit latency α and bandwidth β to measurements of your own, one of which may be far off, and predict a ring
#   from them;
# - turn a time into a bus bandwidth, and tell from it whether a network is as fast as it ought to be.
#
# **You need** lesson 00 (`my_share`, `all_reduce`, the hang report), and slices of tensors. **Time** about 90
# minutes. **Points** 20 for the exercises, 3 for the quiz, 2 for an answer in your own words.

# %% setup

# %%
import time

import torch
import torch.distributed as dist

import rankzero
from rankzero.draw import predicted_against_measured

# %% [markdown]
# ## 1 · Send, receive, and the circle in which nobody moves
#
# **A question from practice.** The gradients of a model with 7 billion parameters are 14 GB in bfloat16. In
# every step each rank needs the sum over all ranks. What is the least that has to be said, and to whom?
#
# Start small. `dist.send(tensor, to)` sends, and `dist.recv(buffer, from)` fills a buffer that you bring. The
# buffer must have the same number of elements and the same dtype: on the way there are only bytes.

# %%
# %%ranks 4
if rank == 0:
    dist.send(torch.tensor([3.0, 1.0, 4.0]), 2)
if rank == 2:
    letter = torch.empty(3)
    dist.recv(letter, 0)
    print("rank 2 has", letter.tolist())

# %% [markdown]
# Both calls **block**. `send` may come back only when the other side has taken the data, and `recv` when it
# is there. Now put the 4 ranks in a circle: each one sends to its right neighbour, then receives from its
# left one.
#
# **Predict.** How many of the 4 ranks come back?

# %% predict
my_guess = None  # ranks, 0 to 4

# %%
def send_first():
    rank, n = dist.get_rank(), dist.get_world_size()
    mine, theirs = torch.full((4,), float(rank)), torch.empty(4)
    dist.send(mine, (rank + 1) % n)
    dist.recv(theirs, (rank - 1) % n)
    return theirs


try:
    rankzero.run(send_first, ranks=4, timeout=3)
except rankzero.HangError as hang:
    print(hang)
print("your guess:", my_guess)

# %% [markdown]
# None of them. All four stand in their send, each waiting for a receive that its neighbour can only reach
# after its own send. That is a **deadlock**, and no time-out is long enough for it. Some systems take small
# messages into a buffer, so that such code runs, until one day the tensors grow.
#
# The way out is a send that does not wait. `isend` starts it and returns at once with a handle, a `Work`.
# Here each rank swaps two numbers with its mirror image:

# %%
# %%ranks 4
mirror = world_size - 1 - rank
mine, theirs = torch.full((2,), float(rank)), torch.empty(2)
sending = dist.isend(mine, mirror)  # starts, and does not wait
dist.recv(theirs, mirror)
sending.wait()  # from here on `mine` may be changed
theirs.tolist()

# %% [markdown]
# `irecv` is its counterpart, and `batch_isend_irecv` starts several at once. Three rules keep you out of
# trouble:
#
# 1. **Keep the handle.** On gloo a send whose handle is thrown away is cancelled, and the other side waits
#    for ever.
# 2. **Wait before you touch.** Until `wait()`, what you send must not be changed, and what you receive is not
#    there yet.
# 3. **Bring the right buffer**: `torch.empty_like(tensor)` has the right dtype, `torch.empty(3)` only
#    sometimes.
#
# ## 2 · Broadcast: those who know it, tell it
#
# **A question from practice.** Rank 0 has read a checkpoint from disk, and 63 others need it. If rank 0 sends
# it to one after the other, this takes 63 rounds, and everybody but two ranks looks on.
#
# **Predict.** In each round, every rank that has the data sends it to one that has not. After how many rounds
# do all 64 have it?

# %% predict
my_guess = None  # rounds

# %% [markdown]
# The number of those who have it doubles in each round: 1, 2, 4, 8, … The pattern is a **binomial tree**.
# Give the ranks places, counted from the source: place 0 is the source itself. In the round in which `reach`
# places have the data, place `p` below `reach` sends to place `p + reach`.
#
# ### Exercise `broadcast_tree`
#
# **Goal** After `broadcast(tensor, src)` every rank holds the tensor of rank `src`, in place.
#
# **Difficulty** ●●○ · **Time** 15 minutes · **Points** 3
#
# **Expected** on 4 ranks, where rank r begins with `[r, r]` and `src=1`: every rank ends with `[1, 1]`, after
# 2 rounds.
#
# - Any `src`, any number of ranks. Tensors are contiguous, and of one shape and dtype.
# - At most ⌈log₂ n⌉ rounds. A message's round is one more than the round in which its sender got the data,
#   and one more than the round of the sender's previous send.
# - Nobody receives twice, and `src` never.
#
# **Free to choose** which tree, and whether you use send or isend. Library collectives are a wrong answer,
# here and in the next three exercises.
#
# <details><summary>Hint 1</summary>
#
# Solve it for `src=0` first. Then use `place = (rank - src) % n`, and turn a place back into a rank when you
# send: `(place + src) % n`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Loop over `reach = 1, 2, 4, …` while it is below n. In each round a rank sends, or receives, or does
# nothing.
#
# </details>
# <details><summary>Hint 3</summary>
#
# It receives if `reach <= place < 2 * reach`. It sends if `place < reach` and `place + reach < n`.
#
# </details>
# <details><summary>If you see this error</summary>
#
# - *Deadlock … waits in recv*: nobody sends to that rank. With 3 ranks, place 3 does not exist: check
#   `place + reach < n`.
# - *That is what rank 0 put in*, for another `src`: a place was used where a rank is needed.
# - *nothing reached it*: receive into `tensor` itself. `tensor = buffer` only renames.
#
# </details>

# %% solution broadcast_tree
# exercise: broadcast_tree
import torch.distributed as dist
from torch import Tensor


def broadcast(tensor: Tensor, src: int = 0) -> None:
    """Give every rank the tensor of rank ``src``, in place, in ⌈log₂ n⌉ rounds.

    Args:
        tensor: any shape and dtype, the same on all ranks; contiguous.
        src: the rank whose values all others take over.
    """
    ### BEGIN SOLUTION
    rank, n = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % n
    reach = 1  # the places below it have the data
    while reach < n:
        if place < reach and place + reach < n:
            dist.send(tensor, (rank + reach) % n)
        elif reach <= place < 2 * reach:
            dist.recv(tensor, (rank - reach) % n)
        reach *= 2
    ### END SOLUTION

# %% tests broadcast_tree
check("broadcast_tree", broadcast)

# %% measure
def broadcast_a_mebibyte():
    broadcast(torch.full((2**18,), float(dist.get_rank())))


print(f"64 ranks: {(64 - 1).bit_length()} rounds     your guess: {my_guess}")
rankzero.watch(broadcast_a_mebibyte, ranks=8).steps()

# %% [markdown]
# Above are your own sends on 8 ranks: 3 rounds, 7 messages. The tree is fine for small messages. For large
# ones it has a weakness: every message is the whole tensor, and rank 0 sends it three times. The ring does
# better.
#
# ## 3 · All-gather: everybody's piece, all the way around
#
# **A question from practice.** Each rank holds one piece of a weight matrix, and for the next layer all ranks
# need all of it. FSDP does this for every layer, forward and backward.
#
# In a **ring** each rank talks to two neighbours only. In every step it passes on to the right what it has
# just received from the left. After n−1 steps everything has come by everywhere. All links are busy in each
# step, and no rank has more to do than another.
#
# **Predict.** 4 ranks, and each brings 1 MiB. How many MiB does each rank send?

# %% predict
my_guess = None  # MiB

# %% [markdown]
# ### Exercise `all_gather_ring`
#
# **Goal** `all_gather(tensor)` returns the tensors of all ranks, stacked by rank.
#
# **Difficulty** ●●○ · **Time** 15 minutes · **Points** 3
#
# **Expected** on 3 ranks, where rank r brings `[r, 10 * r]`: every rank returns `[[0, 0], [1, 10], [2, 20]]`.
#
# - The result has the shape `[n, *tensor.shape]`, and row r is the tensor of rank r, whatever came first.
# - Each rank sends (n−1) times the size of the tensor, and only neighbours talk.
# - The input stays as it was.
#
# **Free to choose** the direction of the ring, or both directions.
#
# <details><summary>Hint 1</summary>
#
# Make the result with `tensor.new_empty(n, *tensor.shape)`, and put your own tensor into row `rank`. You can
# receive straight into a row.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Rank r sends row r in the first step. What arrives then is row r−1, so this is what it sends in the second
# step. In step s it sends row r−s and receives row r−s−1, both modulo n.
#
# </details>
# <details><summary>If you see this error</summary>
#
# - *Every waiting rank sends, and none receives*: use isend, as in section 1.
# - *not by arrival*: you filled the rows as they came. Row r belongs to rank r.
# - *receives into a float32 buffer*: `torch.empty(…)` is float32. `tensor.new_empty(…)` has the dtype of the
#   tensor.
#
# </details>

# %% solution all_gather_ring
# exercise: all_gather_ring
import torch.distributed as dist
from torch import Tensor


def all_gather(tensor: Tensor) -> Tensor:
    """The tensors of all ranks, stacked by rank, gathered around a ring.

    Args:
        tensor: any shape and dtype, the same on all ranks; contiguous. It is left as it is.

    Returns:
        Shape [world size, *tensor.shape], the same on every rank.
    """
    ### BEGIN SOLUTION
    rank, n = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % n, (rank + 1) % n
    gathered = tensor.new_empty(n, *tensor.shape)
    gathered[rank] = tensor
    for step in range(n - 1):
        sending = dist.isend(gathered[(rank - step) % n], right)
        dist.recv(gathered[(rank - step - 1) % n], left)
        sending.wait()
    return gathered
    ### END SOLUTION

# %% tests all_gather_ring
check("all_gather_ring", all_gather)

# %% measure
def gather_a_mebibyte():
    return all_gather(torch.full((2**18,), float(dist.get_rank())))[:, 0].tolist()


seen = rankzero.watch(gather_a_mebibyte, ranks=4)
print(f"rank 0 sent {seen.sent_bytes(0) / 2**20:g} MiB     your guess: {my_guess}")
seen.heat_map()

# %% [markdown]
# ## 4 · Reduce-scatter: sums that grow on their way
#
# **A question from practice.** ZeRO keeps on each rank only a part of the optimizer. So rank r needs the
# summed gradient of its own part, and nothing else. Who adds, and where?
#
# First the cut. `tensor_split(n)` cuts a tensor as `my_share` cuts items: sizes differ by at most one, the
# larger pieces come first, and some are empty if there are too few elements. The pieces are **views**: they
# share the memory of the whole. (`torch.chunk` cuts 9 elements for 4 ranks into three pieces; that would
# leave a rank without one.)

# %%
whole = torch.arange(9)
pieces = whole.tensor_split(4)
pieces[1].add_(100)
print([piece.tolist() for piece in pieces])
print(whole.tolist(), "and torch.chunk gives", len(whole.chunk(4)), "pieces")

# %% [markdown]
# Now the ring. Let 3 ranks hold three pieces each: rank 0 has a₀ b₀ c₀, rank 1 has a₁ b₁ c₁, rank 2 has a₂ b₂
# c₂. Each step sends one piece to the right, and adds what comes from the left:
#
# | | rank 0 | rank 1 | rank 2 |
# |---|---|---|---|
# | step 1 sends | a₀ | b₁ | c₂ |
# | and then holds | c₂ + c₀ | a₀ + a₁ | b₁ + b₂ |
# | step 2 sends | c₂ + c₀ | a₀ + a₁ | b₁ + b₂ |
# | and then holds | **b₁ + b₂ + b₀** | **c₂ + c₀ + c₁** | **a₀ + a₁ + a₂** |
#
# Each piece travels once around, and grows by one summand at each stop. After n−1 steps every rank holds one
# finished piece. Look closely at *which* one: rank 0 has b, the piece after its own. Started this way, rank r
# ends with piece r+1.
#
# **Predict.** 4 ranks hold 16 MiB each. How many MiB does each rank send in a reduce-scatter?

# %% predict
my_guess = None  # MiB

# %% [markdown]
# ### Exercise `reduce_scatter_ring`
#
# **Goal** `reduce_scatter(tensor)` returns on rank r the piece r of the sum over all ranks.
#
# **Difficulty** ●●○ · **Time** 20 minutes · **Points** 3
#
# **Expected** on 2 ranks with `[1, 2, 3]` and `[10, 20, 30]`: rank 0 returns `[11, 22]`, rank 1 returns
# `[33]`.
#
# - Cut the *flattened* tensor as `my_share(numel, r, n)` does. Rank r returns a new tensor with one dim,
#   without padding.
# - Lengths that do not divide, and fewer elements than ranks.
# - The input stays as it was.
# - Each rank sends at most (n−1)·⌈numel/n⌉ elements, and only neighbours talk.
#
# **Free to choose** the direction, and the order of the sums.
#
# <details><summary>Hint 1</summary>
#
# Work on a copy: `pieces = tensor.flatten().clone().tensor_split(n)`. You may add to a piece in place.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Rank r is to end with piece r, so start one piece earlier than the table does: in step s it sends piece
# r−s−1, and adds to piece r−s−2.
#
# </details>
# <details><summary>If you see this error</summary>
#
# - *so that the right piece ends here*, or *Is another piece the finished one?*: the ring ended at piece r+1.
# - *aborted (SIGABRT)*: the buffer must have the size of the piece that *arrives*, not of the one that
#   leaves.
# - *the input is changed*: `flatten()` of a contiguous tensor is a view, so it needs the `clone()`.
# - *'tuple' object does not support item assignment*: write `take = pieces[i]` first, then `take += arrived`.
#
# </details>

# %% solution reduce_scatter_ring
# exercise: reduce_scatter_ring
import torch
import torch.distributed as dist
from torch import Tensor


def reduce_scatter(tensor: Tensor) -> Tensor:
    """Piece r of the sum over all ranks, on rank r, by a ring.

    Args:
        tensor: any shape and dtype, the same on all ranks. It is left as it is.

    Returns:
        A new tensor with one dim: the elements ``my_share(numel, rank, world size)`` of the flattened sum.
    """
    ### BEGIN SOLUTION
    rank, n = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % n, (rank + 1) % n
    pieces = tensor.flatten().clone().tensor_split(n)
    for step in range(n - 1):
        give, take = pieces[(rank - step - 1) % n], pieces[(rank - step - 2) % n]
        arrived = torch.empty_like(take)
        sending = dist.isend(give, right)
        dist.recv(arrived, left)
        sending.wait()
        take += arrived
    return pieces[rank].clone()
    ### END SOLUTION

# %% tests reduce_scatter_ring
check("reduce_scatter_ring", reduce_scatter)

# %% measure
def scatter_16_mebibytes():
    return reduce_scatter(torch.full((2**22,), 10.0 ** dist.get_rank()))[0].item()


seen = rankzero.watch(scatter_16_mebibytes, ranks=4)
print("first element on each rank:", seen.results)
print(f"rank 0 sent {seen.sent_bytes(0) / 2**20:g} MiB     your guess: {my_guess}")

# %% [markdown]
# Rank r put in 10ʳ. So each digit of the sum tells about one rank: `1101` would say that rank 1 is missing,
# `1112` that rank 0 was counted twice. The checks use the same trick.
#
# ## 5 · The ring all-reduce
#
# **A question from practice.** Back to the 14 GB of gradients. If every rank sends them to every other one,
# each rank of 64 sends 63 × 14 GB = 882 GB. What does the ring need?
#
# After a reduce-scatter each rank holds one finished piece. An all-gather of these pieces, and everybody has
# everything: **all-reduce = reduce-scatter + all-gather**. Each half sends n−1 pieces of 1/n of the size,
# which makes 2(n−1)/n times the size for both. At 64 ranks that is 27.6 GB instead of 882.
#
# **Predict.** 4 ranks all-reduce a tensor of 16 MiB. How many MiB does each rank send?

# %% predict
my_guess = None  # MiB

# %% [markdown]
# ### Exercise `ring_all_reduce`
#
# **Goal** After `ring_all_reduce(tensor)` every rank's tensor holds the sum over all ranks, in place.
#
# **Difficulty** ●●● · **Time** 25 minutes · **Points** 5
#
# **Expected** on 4 ranks, where rank r begins with 10ʳ everywhere: `1111` everywhere, on every rank.
#
# - Any size: also sizes that do not divide, fewer elements than ranks, no elements at all. One rank too.
# - Any floating dtype, and tensors that are not contiguous, such as a column of a matrix.
# - Each rank sends at most 2(n−1)·⌈numel/n⌉ elements, to its neighbours only.
# - Large tensors do not lock up: sending and receiving overlap.
#
# **Free to choose** the direction, the order of the sums, padding or uneven pieces, one function or several.
#
# <details><summary>Hint 1</summary>
#
# Do not call your two functions from above one after the other, since they copy. Use their loops on one set
# of pieces: the first loop adds into the pieces, the second overwrites them. Both work on views of one flat
# tensor.
#
# </details>
# <details><summary>Hint 2</summary>
#
# With the ring of the table, rank r holds piece r+1 after the first loop. So the second loop begins by
# sending piece r+1 and receiving piece r. In step s it sends piece r+1−s, and receives piece r−s.
#
# </details>
# <details><summary>Hint 3</summary>
#
# `tensor.contiguous()` gives the tensor itself if it is contiguous, and a copy if it is not. In the second
# case the result has to be written back with `tensor.copy_(…)`.
#
# </details>
# <details><summary>If you see this error</summary>
#
# - *nothing was exchanged*, only for a column or a transposed tensor: the result stayed in the copy. Read
#   hint 3.
# - *Each rank has one finished piece*: the second loop is missing, or begins at the wrong piece.
# - *the rest was dropped*: `numel // n` forgets the remainder, so take `tensor_split`.
# - *Every waiting rank sends, and none receives*: isend first, then recv, then wait.
# - *one step too many*: n−1 steps are enough for each loop.
#
# </details>

# %% solution ring_all_reduce
# exercise: ring_all_reduce
import torch
import torch.distributed as dist
from torch import Tensor


def ring_all_reduce(tensor: Tensor) -> None:
    """Sum ``tensor`` over all ranks, in place, by a ring.

    Args:
        tensor: any shape, floating dtype and layout, the same shape and dtype on all ranks.
    """
    ### BEGIN SOLUTION
    flat = tensor.contiguous().view(-1)
    pieces = flat.tensor_split(dist.get_world_size())
    sends = add_around(pieces) + copy_around(pieces)
    for sending in sends:
        sending.wait()
    if not tensor.is_contiguous():
        tensor.copy_(flat.view_as(tensor))


def add_around(pieces: tuple[Tensor, ...]) -> list[dist.Work]:
    """Reduce-scatter: rank r ends with the sum of piece r + 1. Returns its sends, to be waited for."""
    rank, n = dist.get_rank(), dist.get_world_size()
    inbox = inbox_like(pieces[0])  # the largest piece comes first
    sends = []
    for step in range(n - 1):
        give, take = pieces[(rank - step) % n], pieces[(rank - step - 1) % n]
        arrived = inbox[: take.numel()]
        receiving = dist.irecv(arrived, (rank - 1) % n)
        sends.append(dist.isend(give, (rank + 1) % n))
        receiving.wait()
        take += arrived
    return sends


def copy_around(pieces: tuple[Tensor, ...]) -> list[dist.Work]:
    """All-gather: rank r begins with piece r + 1. Returns its sends, to be waited for.

    A piece may be overwritten although nobody waited for its first send: the sum that arrives contains
    what was sent then, so it was received.
    """
    rank, n = dist.get_rank(), dist.get_world_size()
    receives = [dist.irecv(pieces[(rank - step) % n], (rank - 1) % n) for step in range(n - 1)]
    sends = []
    for step, receiving in enumerate(receives):
        sends.append(dist.isend(pieces[(rank + 1 - step) % n], (rank + 1) % n))
        receiving.wait()
    return sends


inboxes: dict[tuple[torch.dtype, torch.device], Tensor] = {}


def inbox_like(piece: Tensor) -> Tensor:
    """A buffer as large as ``piece``, kept from call to call: new memory costs a page fault per 4 KiB."""
    kept = inboxes.get((piece.dtype, piece.device))
    if kept is None or kept.numel() < piece.numel():
        kept = inboxes[piece.dtype, piece.device] = torch.empty_like(piece)
    return kept
    ### END SOLUTION

# %% tests ring_all_reduce
check("ring_all_reduce", ring_all_reduce)

# %% measure
def reduce_16_mebibytes():
    tensor = torch.full((2**22,), 10.0 ** dist.get_rank())
    ring_all_reduce(tensor)
    return tensor[0].item()


seen = rankzero.watch(reduce_16_mebibytes, ranks=4)
print("sums:", seen.results)
print(f"rank 0 sent {seen.sent_bytes(0) / 2**20:g} MiB     your guess: {my_guess}")
seen.heat_map()

# %% [markdown]
# The four filled cells are the ring, seen from above. Below is the same run step by step. Every arrow carries
# a quarter of the tensor; the arrows that leave on the right come back on the left.

# %% measure
seen.steps()

# %% measure
seen.timeline()

# %% [markdown]
# In the timeline look for sends and receives that lie above each other: that is the overlap. Where a receive
# is long, the rank waited for its left neighbour. A send ends where your code has waited for it. The bars
# look ragged if this machine has fewer cores than ranks, since then the ranks take turns.
#
# ## 6 · How long does it take? α and β
#
# **A question from practice.** Before you rent 64 cards you want to know how long an all-reduce will take on
# them. What do you have to measure?
#
# Two numbers go a long way. One message takes
#
# > **seconds = α + bytes / β**
#
# where **α** is the latency that each message costs, however short, and **β** is the bandwidth in bytes per
# second. To find them, let two ranks play ping-pong with messages of many sizes. Half of a round trip is the
# one-way time. The sizes take turns, and the fastest of 20 rounds counts: what is slower was disturbed by
# something else. (`record=False`: while a clock runs, no call is written down for a hang report.)
#
# **Predict.** How many microseconds does a message of 16 bytes take, one way, between two processes of this
# machine?

# %% predict
my_guess = None  # microseconds

# %%
def timed(call, tensors, rounds=20):
    """Seconds of ``call(tensor)`` for each tensor, the fastest of all rounds."""
    fastest = [float("inf")] * len(tensors)
    for _ in range(rounds):
        for which, tensor in enumerate(tensors):
            started = time.perf_counter()
            call(tensor)
            fastest[which] = min(fastest[which], time.perf_counter() - started)
    return fastest


def ping_pong(sizes_bytes):
    """One-way seconds for each size, between two ranks."""
    me, other = dist.get_rank(), 1 - dist.get_rank()

    def there_and_back(ball):
        for turn in (0, 1):
            dist.send(ball, other) if turn == me else dist.recv(ball, other)

    balls = [torch.zeros(size, dtype=torch.uint8) for size in sizes_bytes]
    return [both_ways / 2 for both_ways in timed(there_and_back, balls)]


sizes_bytes = [16 * 4**k for k in range(11)]  # 16 B to 16 MiB
seconds = rankzero.run(ping_pong, sizes_bytes, ranks=2, record=False)[0]
for size, took in zip(sizes_bytes, seconds):
    print(f"{size:>10,} bytes {1e6 * took:>10,.0f} µs {size / took / 1e9:>8.3f} GB/s")
print(f"16 bytes: {1e6 * seconds[0]:.0f} µs     your guess: {my_guess}")

# %% [markdown]
# Small messages all take about the same time: there you see α. In large ones the last column comes to rest:
# there you see β. Somewhere between lies the size αβ, for which both cost the same.
#
# ### Exercise `fit_alpha_beta`
#
# **Goal** Find α and β from such measurements.
#
# **Difficulty** ●●○ · **Time** 15 minutes · **Points** 2
#
# **Expected** for sizes `[0, 1000, 2000, 3000, 4000]` and seconds `[0.001, 0.002, 0.003, 0.004, 0.005]`: α =
# 0.001 s and β = 1,000,000 bytes/s.
#
# - `seconds` are one-way times, in the order of `sizes_bytes`. The sizes come in any order; there are at
#   least five of them, over a wide range.
# - Noise of 1 %, and at most one measurement that is far off, because something else ran just then.
# - Both numbers within 10 %. Return `(alpha, beta)` in seconds and in bytes per second.
#
# **Free to choose** the method. Ordinary least squares is not enough: one far point bends the whole line, and
# the largest sizes drown the small ones.
#
# <details><summary>Hint 1</summary>
#
# Two measurements determine a line. So every pair of measurements proposes an α and a slope, and only pairs
# with the far point propose nonsense.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Judge each proposal by all measurements, in *relative* errors, so that 1 % of 50 µs counts as much as 1 % of
# 10 ms. Add the absolute values, not the squares: then one far point cannot outvote the others. Keep the
# proposal with the smallest sum.
#
# </details>
# <details><summary>If you see this error</summary>
#
# - *That is the slope*: β is one divided by the slope.
# - *One measurement is far off the line*: your method uses squares or means.
# - *wrong way round*: return α first.
#
# </details>

# %% solution fit_alpha_beta
# exercise: fit_alpha_beta
from itertools import combinations


def fit_alpha_beta(sizes_bytes: list[int], seconds: list[float]) -> tuple[float, float]:
    """Fit seconds = alpha + bytes / beta to one-way times, at most one of which may be far off.

    Args:
        sizes_bytes: at least five different sizes, in any order.
        seconds: the time of each, in the same order.

    Returns:
        alpha in seconds, beta in bytes per second.
    """
    ### BEGIN SOLUTION
    points = list(zip(sizes_bytes, seconds))
    lines = [line_through(one, other) for one, other in combinations(points, 2) if one[0] != other[0]]
    alpha, slope = min(lines, key=lambda line: relative_error(line, points))
    return alpha, 1 / slope


def line_through(one: tuple[int, float], other: tuple[int, float]) -> tuple[float, float]:
    """Alpha and slope of the line through two measurements."""
    slope = (other[1] - one[1]) / (other[0] - one[0])
    return one[1] - slope * one[0], slope


def relative_error(line: tuple[float, float], points: list[tuple[int, float]]) -> float:
    """How far all measurements lie from a line. Absolute values, so that no far one outvotes the rest."""
    alpha, slope = line
    if slope <= 0:
        return float("inf")
    return sum(abs(alpha + slope * size - took) / took for size, took in points)
    ### END SOLUTION

# %% tests fit_alpha_beta
check("fit_alpha_beta", fit_alpha_beta)

# %% measure
alpha, beta = fit_alpha_beta(sizes_bytes, seconds)
print(f"alpha = {1e6 * alpha:.0f} µs, beta = {beta / 1e9:.2f} GB/s, equal at {alpha * beta / 1024:.0f} KiB")
predicted_against_measured(sizes_bytes, seconds, [alpha + size / beta for size in sizes_bytes])

# %% [markdown]
# ### Exercise `ring_seconds`
#
# **Goal** Predict the time of a ring all-reduce of `n_bytes` on `ranks` ranks from α and β.
#
# **Difficulty** ●○○ · **Time** 5 minutes · **Points** 2
#
# **Expected** for 8,000,000 bytes on 8 ranks with α = 0.00001 s and β = 1,000,000,000 bytes/s: 0.01414 s. For
# one rank: 0.
#
# <details><summary>Hint</summary>
#
# How many steps do both loops have together? And what does one step cost, in which every rank sends a single
# piece?
#
# </details>
# <details><summary>If you see this error</summary>
#
# - *Alpha is counted once*: every step pays it.
# - *A step sends one piece*: that is `n_bytes / ranks`, not the whole tensor.
#
# </details>

# %% solution ring_seconds
# exercise: ring_seconds
def ring_seconds(n_bytes: float, ranks: int, alpha: float, beta: float) -> float:
    """Seconds of a ring all-reduce.

    Args:
        n_bytes: the size of the tensor.
        ranks: how many ranks there are; one rank takes no time.
        alpha: latency of a message, in seconds.
        beta: bandwidth from one rank to the next, in bytes per second.
    """
    ### BEGIN SOLUTION
    steps = 2 * (ranks - 1)
    return steps * (alpha + n_bytes / ranks / beta)
    ### END SOLUTION

# %% tests ring_seconds
check("ring_seconds", ring_seconds)

# %% [markdown]
# Now against your own ring, on 4 ranks, from 4 KiB to 16 MiB.
#
# **Predict.** By what factor will the measured time of the 16 MiB tensor differ from the predicted one? (1
# means that the formula is right.)

# %% predict
my_guess = None  # measured / predicted, at 16 MiB

# %% measure
def time_ring(sizes_bytes):
    """Seconds of the ring for each size."""
    return timed(ring_all_reduce, [torch.zeros(size // 4) for size in sizes_bytes])


ring_sizes = [4**k * 1024 for k in range(1, 8)]
by_rank = rankzero.run(time_ring, ring_sizes, ranks=4, record=False)
measured = [max(times) for times in zip(*by_rank)]
predicted = [ring_seconds(size, 4, alpha, beta) for size in ring_sizes]
print(f"16 MiB: measured / predicted = {measured[-1] / predicted[-1]:.1f}     your guess: {my_guess}")
predicted_against_measured(ring_sizes, measured, predicted)

# %% [markdown]
# The shape is right: flat as long as latency counts, then a straight rise. The height is off where four ranks
# share a few cores. In the ping-pong one of the two ranks was always waiting; in the ring all four send,
# receive and add at once, with the same cores and the same memory. So ask the machine again, this time with
# every link busy:

# %% measure
def ring_step(sizes_bytes):
    """Seconds in which every rank sends to its right and receives from its left at once, for each size."""
    rank, n = dist.get_rank(), dist.get_world_size()

    def give_and_take(pair):
        sending = dist.isend(pair[0], (rank + 1) % n)
        dist.recv(pair[1], (rank - 1) % n)
        sending.wait()

    return timed(give_and_take, [torch.zeros(2, size, dtype=torch.uint8) for size in sizes_bytes])


by_rank = rankzero.run(ring_step, sizes_bytes, ranks=4, record=False)
busy_alpha, busy_beta = fit_alpha_beta(sizes_bytes, [max(times) for times in zip(*by_rank)])
print(f"all links busy: alpha = {1e6 * busy_alpha:.0f} µs, beta = {busy_beta / 1e9:.2f} GB/s")
predicted = [ring_seconds(size, 4, busy_alpha, busy_beta) for size in ring_sizes]
print(f"16 MiB: measured / predicted = {measured[-1] / predicted[-1]:.1f}")
predicted_against_measured(ring_sizes, measured, predicted)

# %% [markdown]
# On the two cores on which this was written the factor fell from 5.0 to 1.4 (1 December 2026). What is still
# missing are the additions, and the luck of the day. The rule to take home: **measure α and β under the load
# that you are going to have.** On a cluster, where each card has links of its own and adds much faster than
# they deliver, the two measurements lie closer together.
#
# ## 7 · Bus bandwidth: is this network as fast as it ought to be?
#
# **A question from practice.** An all-reduce of 1 GB takes 10 ms on 8 GPUs. Is that good?
#
# Size divided by time is the **algorithm bandwidth**, here 100 GB/s. But each rank had to send 1.75 GB, so
# its link ran at 175 GB/s. This is the **bus bandwidth** of nccl-tests: the algorithm bandwidth times
# 2(n−1)/n. It can be compared with the data sheet of a link, for any number of ranks.
#
# ### Exercise `bus_bandwidth`
#
# **Goal** The bus bandwidth of an all-reduce, in bytes per second.
#
# **Difficulty** ●○○ · **Time** 5 minutes · **Points** 2
#
# **Expected** for 1,000,000,000 bytes in 0.01 s on 8 ranks: 175,000,000,000 bytes/s. For one rank: 0.
#
# <details><summary>Hint</summary>
#
# How many bytes does each rank send, and in what time?
#
# </details>
# <details><summary>If you see this error</summary>
#
# - *That is the algorithm bandwidth*: the factor 2(n−1)/n is missing.
# - *is the factor of all-gather and reduce-scatter*: an all-reduce is both, one after the other.
#
# </details>

# %% solution bus_bandwidth
# exercise: bus_bandwidth
def bus_bandwidth(n_bytes: float, seconds: float, ranks: int) -> float:
    """Bus bandwidth of an all-reduce, in bytes per second, as nccl-tests defines it.

    Args:
        n_bytes: the size of the tensor.
        seconds: how long the all-reduce took.
        ranks: how many ranks took part; one rank sends nothing.
    """
    ### BEGIN SOLUTION
    sent_bytes = 2 * (ranks - 1) / ranks * n_bytes
    return sent_bytes / seconds
    ### END SOLUTION

# %% tests bus_bandwidth
check("bus_bandwidth", bus_bandwidth)

# %% measure
for size, took in zip(ring_sizes, measured):
    print(f"{size // 1024:>8,} KiB {1e3 * took:>9.2f} ms {bus_bandwidth(size, took, 4) / 1e9:>8.3f} GB/s")

# %% [markdown]
# Compare with what others have measured. All figures are bus bandwidths of an all-reduce:
#
# | where | GB/s |
# |---|---|
# | 8 × H200 with NVSwitch, large messages | 482 (NVLS); 368 with a ring |
# | 8 × A100 with NVSwitch, 16 GiB | 235 |
# | the same, 16 MiB | 106 |
# | the same, 32 KiB (44 µs) | 1.3 |
# | 8 × RTX 5090 on PCIe 5, no direct access between cards | 28 |
# | one network card of 100 Gbit/s per node | 12 at best |
#
# Look at the three rows of the A100: the same machine, and a factor of 180. In small messages latency eats
# everything, and this is why the next lesson puts gradients into buckets.
#
# **Predict.** How many seconds do the 14 GB of gradients take on 8 GPUs, at 235 GB/s and at 12 GB/s? Type the
# second number.

# %% predict
my_guess = None  # seconds, at 12 GB/s

# %% measure
for gb_per_s in (235, 12):
    print(f"at {gb_per_s:>3} GB/s: {2 * 7 / 8 * 14e9 / (gb_per_s * 1e9):.2f} s")
print("your guess:", my_guess)

# %% [markdown]
# ### The same on GPUs
#
# NCCL has all of this built in. It chooses between ring and tree by itself, and on large NVSwitch machines
# lets the switch add (NVLS). Three things differ from gloo:
#
# - Calls return before the GPU is done. Call `torch.cuda.synchronize()` before you read a clock.
# - Use `batch_isend_irecv` for sends and receives that belong together. One after the other they may wait for
#   each other, even with isend.
# - One rank per GPU: two ranks on one card cannot use NCCL. On Colab's single T4 your ranks stay on gloo;
#   Kaggle's two T4s, or two rented cards, are enough for NCCL.
#
# Half the bytes take half the time, so large gradients often travel in 16 bits. A T4 has no bf16, and float16
# ends at 65,504: there, divide by n before the sum.
#
# Outside a notebook, `torchrun --nproc-per-node 2 ring.py` starts the ranks. Each of them first calls
# `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))`, then `dist.init_process_group("nccl")`; from there
# on it is the code of this lesson.

# %% measure
def nccl_seconds(n_bytes, repeats=5):
    card = torch.device("cuda", dist.get_rank())
    tensor = torch.ones(n_bytes // 4, device=card)
    dist.all_reduce(tensor)
    torch.cuda.synchronize(card)
    started = time.perf_counter()
    for _ in range(repeats):
        dist.all_reduce(tensor)
    torch.cuda.synchronize(card)
    return (time.perf_counter() - started) / repeats


gpus = torch.cuda.device_count()
if gpus >= 2:
    for mebibytes in (1, 16, 256):
        took = max(rankzero.run(nccl_seconds, mebibytes * 2**20, ranks=gpus, record=False))
        gb_per_s = bus_bandwidth(mebibytes * 2**20, took, gpus) / 1e9
        print(f"{mebibytes:>4} MiB {1e3 * took:>8.2f} ms {gb_per_s:>8.2f} GB/s")
else:
    print(f"GPUs here: {gpus}. With two or more, this cell times NCCL's own all-reduce at 1, 16 and 256 MiB.")
    print("Two T4s on PCIe 3 x16 have a link of 15.8 GB/s in each direction; NCCL reckons with 12 of it.")
    print(f"At that rate 256 MiB would take them {2**28 / 12e9 * 1e3:.0f} ms.")

# %% [markdown]
# ## What have you learnt?
#
# Click through the questions. Then type your letters in the cell below in place of `None`, and delete the
# line that raises `NotImplementedError`. Once all three are right, the check tells you why.

# %% quiz
quiz("quiz_04")

# %% solution quiz_04
# exercise: quiz_04
answers = {"q1": None, "q2": None, "q3": None}  # a letter each, such as "b"
### BEGIN SOLUTION
answers = {"q1": "c", "q2": "a", "q3": "d"}
### END SOLUTION

# %% tests quiz_04
check("quiz_04", answers)

# %% [markdown]
# ### In your own words
#
# You go from 8 to 64 ranks, over links of the same speed. For a large tensor the ring all-reduce takes hardly
# longer than before, for a small one it takes many times as long. Why? And what would you do about 500 small
# tensors? Four or five sentences. (2 points, read by a person.)

# %% words words_04 2
# ### BEGIN SOLUTION
# The time is 2(n−1)·(α + size/(nβ)). For a large tensor the second term counts. Each rank sends 2(n−1)/n
# times the size, 1.75 times at 8 ranks and 1.97 times at 64, so the time grows by an eighth and can never
# reach 2·size/β. For a small tensor the first term counts: there are 14 steps at 8 ranks and 126 at 64, and
# each of them costs α, so it takes 9 times as long. I would put the 500 tensors into one large one and reduce
# that: 126 steps in all instead of 500 times 126. For messages that stay small, a tree needs fewer steps.
#
# Rubric: 1 point for both terms (bytes per rank nearly constant, steps proportional to n−1); 1 point for
# putting small tensors together, with the reason that the number of steps, and so of latencies, falls.
# ### END SOLUTION

# %%
progress()

# %% [markdown]
# **Next: lesson 05**, in which your all-reduce averages gradients, in buckets, while backward is still
# running.
#
# ### Sources
#
# - Bus bandwidth: NVIDIA/nccl-tests, `doc/PERFORMANCE.md`, 9 July 2026.
# - A100 and H200: stas00/ml-engineering, `network/README.md`, August 2026.
# - RTX 5090: NVIDIA/nccl issue 1639, 14 March 2025. Network card of 100 Gbit/s: NVIDIA in nccl-tests issue
#   119, November 2022.
# - PCIe 3 ×16: 15.8 GB/s by its specification; 12 in NCCL's own topology model, `topo.h`, June 2026.
# - Circles of sends in GPU code, as people met them: NVIDIA/nccl issues 479 and 783.
