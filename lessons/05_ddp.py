# %% [markdown]
# # 05 · DDP: data parallelism by hand
#
# {{badges}}
#
# Every rank holds the whole model and sees its own part of the data; after each backward all ranks agree on one
# gradient. That is data parallelism, the first thing everybody does with a second card. You build it from the
# sampler to the wrapper that sends gradients while backward is still running, and put it beside torch's own.
#
# **After this lesson you can**
#
# - cut 13 samples for 4 ranks so that all get 4 and nobody waits for ever in the last step;
# - tell why gradients that are 4 times too large pass unseen under AdamW, and what shows them;
# - write a `HandDDP` that equals one process on the whole batch, sends its first bucket before the last gradient
#   exists, and once per optimizer step however many micro-batches there are;
# - read from a timeline of your own ranks whether communication hides behind backward;
# - answer a boss who wants 42 days of training done in 36 hours: 28.0 times as fast, in cards, efficiency, data,
#   network and dollars.
#
# **You need** lesson 04 (all-reduce, async `Work`), `nn.Module`, and what `p.grad` is. **Time** about 3 hours; there
# is a good place to stop half-way. **Points** 20 for the exercises, 3 for the quiz, 2 for an answer in your own
# words.

# %% setup

# %%
import math
import time

import torch
import torch.distributed as dist
from torch import nn

import rankzero
from rankzero.draw import measured_and_theory

# %% [markdown]
# ## 1 · Who sees which sample?
#
# **A question from practice.** 20 million images, 100 epochs, 32 cards. Each card must see its own images, all
# cards together must see all of them, and next epoch in another order. No rank may ask another one. How?
#
# All ranks shuffle the whole list *in the same way*, with a generator that starts from the same number, and each
# takes its part of that one order. A generator of your own does not disturb dropout, nor anything else that draws
# from torch's global one:

# %%
generator = torch.Generator().manual_seed(7)
print(torch.randperm(5, generator=generator).tolist(), torch.randperm(5, generator=generator).tolist())

# %% [markdown]
# Then there is the last step. Backward ends in a collective, and a collective waits for everyone. If rank 0 has one
# batch more than the others, it waits for ever. So all ranks get the same number of samples: some see a sample that
# was seen already (*padding*), or, with `drop_last`, what does not divide is left out.
#
# **Predict.** 13 samples, 4 ranks, no `drop_last`. How many samples does each rank get?

# %% predict
my_guess = None  # samples

# %% [markdown]
# ### Exercise `epoch_indices`
#
# **Goal** The indices of the samples that a rank sees in an epoch.
#
# **Difficulty** ●●○ · **Time** 15 minutes · **Points** 3
#
# **Expected** for `n=5, world_size=2`: 3 indices on each rank, which together contain 0, 1, 2, 3, 4, and one of them
# twice. With `drop_last`: 2 on each, all different.
#
# - ⌈n / world_size⌉ indices on each rank, or ⌊n / world_size⌋ with `drop_last`. There may be fewer samples than ranks.
# - One shuffle for all ranks, from which each takes its part. `epoch` and `seed` both change it.
# - The same arguments give the same list, always. Torch's global generator is left alone.
#
# **Free to choose** which samples are padding, and how the order is cut: in strides or in blocks.
#
# <details><summary>Hint 1</summary>
#
# `seed + epoch` starts the generator. Repeat the shuffled list until it is long enough, cut it to the length that
# divides, and take every `world_size`-th from `rank` on.
#
# </details>
# <details><summary>If you see this error</summary>
#
# - *Here more padding is needed than there are samples*: 2 samples for 5 ranks need each sample twice, and one
#   of them a third time.
# - *Does each rank shuffle in its own way*: `rank` must not start the generator.
# - *shuffle first, then cut*: else a rank sees the same samples in every epoch.
#
# </details>

# %% solution epoch_indices
# exercise: epoch_indices
import math

import torch


def epoch_indices(
    n: int, rank: int, world_size: int, epoch: int, seed: int, drop_last: bool = False
) -> list[int]:
    """Which of ``n`` samples a rank sees in an epoch, in what order.

    Args:
        epoch, seed: both change the order; all ranks give the same.
        drop_last: leave out what does not divide, instead of padding.
    """
    ### BEGIN SOLUTION
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator).tolist()
    each = n // world_size if drop_last else math.ceil(n / world_size)
    total = each * world_size
    while len(order) < total:
        order += order[: total - len(order)]
    return order[rank:total:world_size]
    ### END SOLUTION

# %% tests epoch_indices
check("epoch_indices", epoch_indices)

# %% measure
from torch.utils.data import DistributedSampler

for rank in range(4):
    torchs = DistributedSampler(range(13), num_replicas=4, rank=rank, seed=3)
    torchs.set_epoch(1)
    print(f"rank {rank}: yours {epoch_indices(13, rank, 4, 1, 3)}     torch's {list(torchs)}")
print(f"each rank gets {len(epoch_indices(13, 0, 4, 1, 3))}     your guess: {my_guess}")

# %% [markdown]
# Torch's own sampler is called `DistributedSampler`, and `set_epoch` is the line that everybody forgets: without it
# every epoch has the same order. Padding is fine for training. For evaluation it is not: a sample that counts twice
# shifts the metric.
#
# ## 2 · The same start
#
# **A question from practice.** Two ranks build the same model, but with other random weights. Every step averages
# their gradients and updates both with the mean. Do they come together in time?
#
# **Predict.** At the start, some weight differs by 1.0 between the ranks. By how much does it differ after 100 steps
# of SGD with averaged gradients?

# %% predict
my_guess = None  # between 0.0 and 1.0, or more

# %% [markdown]
# You will see the answer in section 3. First the remedy: rank 0 tells all others how to start. That includes
# **buffers**, which are state without a gradient: BatchNorm's running means, or a table of positions. `model.buffers()`
# gives them all; `state_dict()` leaves out those registered with `persistent=False`.
#
# ### Exercise `broadcast_state`
#
# **Goal** Every rank's model holds what rank 0's holds.
#
# **Difficulty** ●○○ · **Time** 5 minutes · **Points** 2
#
# **Expected** after the call: all parameters, frozen ones too, and all buffers are equal on all ranks, bit by bit.
#
# - In place: whoever holds one of these tensors (an optimizer, a tied layer) sees the new values in it.
#
# **Free to choose** one by one, or flattened; any collective.
#
# <details><summary>If you see this error</summary>
#
# - *a leaf Variable that requires grad … in-place*: use `tensor.detach()` or `tensor.data`, which share the memory.
#
# </details>

# %% solution broadcast_state
# exercise: broadcast_state
import torch.distributed as dist
from torch import nn


def broadcast_state(model: nn.Module) -> None:
    """Give every rank rank 0's parameters and buffers, in place."""
    ### BEGIN SOLUTION
    for tensor in (*model.parameters(), *model.buffers()):
        dist.broadcast(tensor.detach(), src=0)
    ### END SOLUTION

# %% tests broadcast_state
check("broadcast_state", broadcast_state)

# %% [markdown]
# ## 3 · The same gradient
#
# **A question from practice.** Each rank computes the gradient of *its* mean loss, over 256 of 8192 images. What has
# to be sent so that all ranks do what one card would do with all 8192?
#
# If all ranks have equally many samples, the gradient of the whole mean is the **mean of the ranks' gradients**. So:
# all-reduce, and divide by the number of ranks. The sum alone is n times too large. Does anybody notice?

# %%
def update(make_optimizer, factor):
    """What one step does to a weight of 1.0 whose gradient is 0.5 times a factor."""
    weight = nn.Parameter(torch.tensor(1.0))
    weight.grad = torch.tensor(0.5 * factor)
    make_optimizer([weight], lr=0.01).step()
    return weight.item() - 1


for make_optimizer in (torch.optim.SGD, torch.optim.AdamW):
    right, wrong = update(make_optimizer, 1), update(make_optimizer, 4)
    print(f"{make_optimizer.__name__:6} moves it by {right:.7f}; with the sum over 4 ranks by {wrong:.7f}")

# %% [markdown]
# SGD takes four times the step. AdamW divides the gradient by its own size, so it hides the mistake, until you clip
# gradients or compare runs. Hence the rule of this course: **look at the gradients before an optimizer does.**
#
# One trap is left. A layer that a rank did not use has `grad = None` there: another branch was taken, an expert got
# no token. If this rank skips its all-reduce, its *next* one meets the others' *this* one. Equal shapes then swap
# silently; other shapes abort. All ranks must make the same calls in the same order, and a missing gradient counts as
# zero.
#
# ### Exercise `average_gradients`
#
# **Goal** Afterwards every rank holds in `p.grad` the mean over all ranks, for every parameter of the model.
#
# **Difficulty** ●●○ · **Time** 10 minutes · **Points** 3
#
# **Expected** on 3 ranks with the gradients 3, None and 6 of a parameter: 3 on every rank.
#
# - The divisor is the world size, also where some ranks lack the gradient.
# - A parameter that nobody used may keep None, or get zeros. Weights are not touched.
#
# **Free to choose** one all-reduce each or one for all, divide before or after, async or not.
#
# <details><summary>If you see this error</summary>
#
# - *aborted (SIGABRT)*, or another parameter's values: a rank skipped a call. Fill in zeros first.
# - *nothing was exchanged*: `all_reduce` works in place. If you gave it a copy, copy the result back.
#
# </details>

# %% solution average_gradients
# exercise: average_gradients
import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    """Replace each gradient by its mean over all ranks; a missing one counts as zero."""
    ### BEGIN SOLUTION
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trained:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    works = [dist.all_reduce(parameter.grad, async_op=True) for parameter in trained]
    for work, parameter in zip(works, trained):
        work.wait()
        parameter.grad /= dist.get_world_size()
    ### END SOLUTION

# %% tests average_gradients
check("average_gradients", average_gradients)

# %% measure
def train_apart(same_start):
    """A weight before and after 100 steps of SGD with averaged gradients, each rank on data of its own."""
    torch.manual_seed(dist.get_rank())
    model = nn.Linear(8, 1, bias=False)
    if same_start:
        broadcast_state(model)
    before = model.weight[0, 0].item()
    for _ in range(100):
        x = torch.randn(16, 8)
        model.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        average_gradients(model)
        with torch.no_grad():
            model.weight -= 0.05 * model.weight.grad
    return before, model.weight[0, 0].item()


for same_start in (False, True):
    (before, after), (other_before, other_after) = rankzero.run(train_apart, same_start, ranks=2)
    print(f"broadcast_state: {same_start!s:5}     difference {other_before - before:+.6f} -> {other_after - after:+.6f}")
print("your guess:", my_guess)

# %% [markdown]
# The difference stays, to the last digits: both ranks take the same steps, from other places. They descend on the
# mean of two gradients taken at two different points, which belongs to neither model. Nothing crashes, the loss even
# falls. That is why the broadcast comes first.
#
# ## 4 · Fewer, larger messages
#
# **A question from practice.** ResNet-50 has 25.6 million parameters in 161 tensors, many of them with a few hundred
# elements. From lesson 04 you know what a small message costs.
#
# **Predict.** On 4 ranks, 160 tensors of 4 KiB each are all-reduced one by one, or as one tensor of 640 KiB. By what
# factor is the second way faster?

# %% predict
my_guess = None  # factor

# %% measure
def seconds_of_both(tensors, numel):
    """Median seconds of one all-reduce per tensor, and of one for all."""
    small, large = torch.zeros(tensors, numel), torch.zeros(tensors * numel)
    taken = [[], []]
    for _ in range(7):
        for times, batch in zip(taken, (small, [large])):
            dist.barrier()
            started = time.perf_counter()
            for tensor in batch:
                dist.all_reduce(tensor)
            times.append(time.perf_counter() - started)
    return [sorted(times)[3] for times in taken]


one_by_one, at_once = map(max, zip(*rankzero.run(seconds_of_both, 160, 1024, ranks=4, record=False)))
print(f"one by one {1e3 * one_by_one:.1f} ms, at once {1e3 * at_once:.1f} ms: factor {one_by_one / at_once:.0f}")
print("your guess:", my_guess)

# %% [markdown]
# So why not one message for everything? Because it can leave only when the *last* gradient is there, and then nothing
# is left to do in the meantime. The middle way are **buckets** of some megabytes: large enough for the link, small
# enough that the first one leaves early. Torch's default is 25 MiB.
#
# Gradients come **from the back**: backward begins at the loss. So the last parameters belong into the first bucket.
#
# ### Exercise `make_buckets`
#
# **Goal** Parameters in buckets of at most `cap_bytes`.
#
# **Difficulty** ●●○ · **Time** 10 minutes · **Points** 2
#
# **Expected** for parameters a, b, c, d of 4, 5, 5 and 6 float32 elements, and `cap_bytes=40`: `[[d], [c, b], [a]]`.
# (d has 24 bytes, c 20: together they are too many. c and b fill 40 to the byte.)
#
# - In the reverse of the given order; each parameter once. Close a bucket only when the next one does not fit.
# - A bucket holds one dtype: it will be one flat tensor. A parameter larger than the cap is alone in its bucket.
# - `parameters` is any iterable, such as the generator that `model.parameters()` returns.
#
# **Free to choose** for mixed dtypes: close the bucket when the dtype changes, or keep one open for each dtype.
#
# <details><summary>If you see this error</summary>
#
# - *'generator' object is not reversible*: `list(parameters)` first.
# - *Are elements counted, not bytes?*: `parameter.numel() * parameter.element_size()`.
#
# </details>

# %% solution make_buckets
# exercise: make_buckets
from collections.abc import Iterable

from torch.nn import Parameter


def make_buckets(parameters: Iterable[Parameter], cap_bytes: int) -> list[list[Parameter]]:
    """Parameters in buckets of at most ``cap_bytes`` and one dtype, the last parameters first.

    Args:
        cap_bytes: a parameter that is larger gets a bucket of its own.
    """
    ### BEGIN SOLUTION
    buckets: list[list[Parameter]] = []
    room = 0  # bytes left in the last bucket
    for parameter in reversed(list(parameters)):
        size = parameter.numel() * parameter.element_size()
        if not buckets or size > room or parameter.dtype != buckets[-1][0].dtype:
            buckets.append([])
            room = cap_bytes
        buckets[-1].append(parameter)
        room -= size
    return buckets
    ### END SOLUTION

# %% tests make_buckets
check("make_buckets", make_buckets)

# %% [markdown]
# > **A good place to stop.** Save; next time run all cells up to here and go on.
#
# ## 5 · Send while backward runs
#
# **A question from practice.** A step takes 300 ms: 100 forward, 200 backward. Then 100 ms of all-reduce, while the
# card waits. Can you have these 100 ms back?
#
# Look at it first. `rankzero.mark(name)` notes a moment; a **hook** on each parameter calls it when the gradient is
# there. The timeline shows the marks above the calls.

# %% measure
def two_steps(make_ddp):
    """Two steps on this rank, with marks; the second one is shown."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(400, 400) for _ in range(6)))
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda _: rankzero.mark("gradient ready"))
    ddp = make_ddp(model) if make_ddp else model
    for step in ("warm-up", "backward"):
        loss = ddp(torch.randn(256, 400)).square().mean()
        rankzero.mark(step)
        loss.backward()
        ddp.finish() if make_ddp else average_gradients(model)
        model.zero_grad()


rankzero.watch(two_steps, None, ranks=2).timeline(since="backward")

# %% [markdown]
# First all gradients, then all messages. Now the tools for doing both at once.
#
# **Hooks.** `register_post_accumulate_grad_hook` gives a parameter a function that backward calls as soon as `p.grad`
# holds its gradient. It gets the *parameter*, not the gradient:

# %%
model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
names = {parameter: name for name, parameter in model.named_parameters()}
for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(lambda p: print(f"{names[p]}: {p.grad.flatten().tolist()}"))
model(torch.ones(1, 2)).sum().backward()

# %% [markdown]
# **Async collectives.** With `async_op=True` a collective starts and returns a `Work` at once. Until you have waited
# for it, the tensor is neither yours to read nor to write:

# %%
# %%ranks 2
tensor = torch.full((3,), 1.0 + rank)
work = dist.all_reduce(tensor, async_op=True)  # starts, and does not wait
useful = sum(range(1000))
work.wait()
tensor.tolist()

# %% [markdown]
# **Places in a flat tensor.** `split` cuts a flat tensor into views, `view_as` gives each the shape of a parameter.
# If `p.grad` *is* such a view, then whoever sums up the flat tensor has summed up the gradient, without a copy:

# %%
flat = torch.zeros(5)
matrix, vector = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(1))
parts = flat.split([4, 1])
matrix.grad, vector.grad = parts[0].view_as(matrix), parts[1].view_as(vector)
flat += 7
matrix.grad.tolist(), vector.grad.tolist()

# %% [markdown]
# **A context manager** from a generator: what stands before `yield` happens on entering a `with` block, what stands
# in `finally` on leaving it, even by an exception:

# %%
import contextlib


@contextlib.contextmanager
def hush():
    print("begins")
    try:
        yield
    finally:
        print("ends")


with hush():
    print("within")

# %% [markdown]
# **Gradient accumulation** is what the context manager is for. If the batch does not fit, a step takes it in several
# *micro-batches*, whose gradients add up in `p.grad`; each loss is divided by their number. Only the sum has to
# travel, so all but the last backward run inside `with ddp.no_sync():`
#
# ```python
# for micro_batch in micro_batches[:-1]:
#     with ddp.no_sync():
#         (loss_of(ddp, micro_batch) / len(micro_batches)).backward()
# (loss_of(ddp, micro_batches[-1]) / len(micro_batches)).backward()
# ddp.finish()
# optimizer.step()
# ```
#
# **Predict.** 6 layers of equal size in 6 buckets, no accumulation. How many of the 6 all-reduces can begin before
# the last gradient is ready?

# %% predict
my_guess = None  # all-reduces

# %% [markdown]
# ### Exercise `hand_ddp`
#
# **Goal** `HandDDP(module)` trains like one process on the whole batch, and sends while backward runs.
#
# **Difficulty** ●●● · **Time** 75 minutes · **Points** 8
#
# **Expected** after `finish()`: in `p.grad` the mean over the ranks, of all micro-batches added up.
#
# The skeleton has four steps, and the check judges each by its number. To check a step before the next ones are
# written, put `pass` in place of their `raise`.
#
# 1. **Constructor**: every rank starts as rank 0, buffers included.
# 2. **`gradient_is_ready(parameter)`**, a hook on every trained parameter: put its gradient into its bucket, and send
#    *in the buckets' order* those that are complete. The first one leaves before the last gradient is ready, in every
#    step. Only calls during backward and `finish()` are counted: one all-reduce per bucket, and at most one more to
#    agree on who used what.
# 3. **`finish()`**, called once before each optimizer step: send what never became complete, since some parameter was
#    not used on this rank, wait for all, and be ready for the next step.
# 4. **`no_sync()`**: gradients add up, and nothing is sent. What counts is where *backward* runs. A gradient
#    that comes only from a micro-batch in `no_sync` is sent as well.
#
# - `forward` takes and returns whatever the module does. Weights may be tied, frozen, of several dtypes.
# - `zero_grad` may set gradients to None, or to zero in place.
#
# **Free to choose** everything else: which hooks, copied or viewed gradients, divide before or after, the helpers.
# DistributedDataParallel itself is a wrong answer.
#
# <details><summary>Hint 1</summary>
#
# Why in order? Rank 0 uses a layer that rank 1 does not, so their buckets complete in different orders. If each sent
# what is ready, their all-reduces would be paired wrongly. Keep a set for each bucket of the parameters it still waits
# for, and send the next bucket, and the next, as long as the set is empty.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Dividing *before* the sum needs nobody to remember it later:
# `torch.div(parameter.grad, n, out=place)`, then `parameter.grad = place`.
#
# </details>
# <details><summary>Hint 3</summary>
#
# `finish` puts zeros into the places of parameters without a gradient. But a parameter whose hook did not run may well
# have one, from `no_sync`: ask whether `parameter.grad` is None.
#
# </details>
# <details><summary>If you see this error</summary>
#
# - *only when the last gradient is ready*: is the first bucket the one with the last parameters?
# - *It went well until step 1*: what waits and what was sent must begin anew in every step.
# - *never waited for*: keep every `Work`, and wait in `finish`.
# - *Each rank has its own*: the last bucket is not full, or a rank that skipped a layer sent nothing.
#
# </details>

# %% solution hand_ddp
# exercise: hand_ddp
import contextlib
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import Parameter


class HandDDP(nn.Module):
    """A replica of a module; gradients are averaged over all ranks, in buckets, while backward runs.

    Args:
        module: of the same shape on all ranks; afterwards all have rank 0's state.
        bucket_cap_bytes: the most that travels at once.
    """

    def __init__(self, module: nn.Module, bucket_cap_bytes: int = 25 * 2**20):
        super().__init__()
        self.module = module
        self.syncing = True  # no_sync turns it off for a while
        # step 1: every rank starts as rank 0
        ### BEGIN SOLUTION
        broadcast_state(module)
        ### END SOLUTION
        # step 2: buckets, a place in its bucket for each gradient, and a hook on each parameter
        ### BEGIN SOLUTION
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.buckets = make_buckets(trained, bucket_cap_bytes)
        self.number_of = {parameter: number for number, bucket in enumerate(self.buckets) for parameter in bucket}
        self.flats = [bucket[0].new_empty(sum(parameter.numel() for parameter in bucket)) for bucket in self.buckets]
        self.places = {}
        for bucket, flat in zip(self.buckets, self.flats):
            parts = flat.split([parameter.numel() for parameter in bucket])
            self.places |= {parameter: part.view_as(parameter) for parameter, part in zip(bucket, parts)}
        for parameter in trained:
            parameter.register_post_accumulate_grad_hook(self.gradient_is_ready)
        self.start_over()

    def start_over(self) -> None:
        """Nothing is sent yet, and each bucket waits for all of its gradients."""
        self.works: list[dist.Work] = []  # of the buckets sent: always the first ones
        self.waits_for = [set(bucket) for bucket in self.buckets]
        ### END SOLUTION

    def forward(self, *args, **kwargs):
        """What the module makes of the same arguments."""
        ### BEGIN SOLUTION
        return self.module(*args, **kwargs)
        ### END SOLUTION

    def gradient_is_ready(self, parameter: Parameter) -> None:
        """Backward calls this when ``parameter.grad`` is there."""
        # step 2: put it into its place, and send the next buckets as far as they are complete
        ### BEGIN SOLUTION
        if self.syncing:
            self.put_in_place(parameter)
            self.waits_for[self.number_of[parameter]].discard(parameter)
            while len(self.works) < len(self.buckets) and not self.waits_for[len(self.works)]:
                self.send_next_bucket()

    def put_in_place(self, parameter: Parameter) -> None:
        """This rank's part of the mean goes into the bucket; the gradient is a view of it from here on."""
        place = self.places[parameter]
        if parameter.grad is None:
            place.zero_()
        else:
            torch.div(parameter.grad, dist.get_world_size(), out=place)
        parameter.grad = place

    def send_next_bucket(self) -> None:
        """Start the all-reduce of the first bucket that has not been sent."""
        self.works.append(dist.all_reduce(self.flats[len(self.works)], async_op=True))
        ### END SOLUTION

    def finish(self) -> None:
        """Leave the mean over all ranks in every ``parameter.grad``."""
        # step 3: send what is left, and wait for all
        ### BEGIN SOLUTION
        while len(self.works) < len(self.buckets):
            for parameter in self.waits_for[len(self.works)]:
                self.put_in_place(parameter)
            self.send_next_bucket()
        for work in self.works:
            work.wait()
        self.start_over()
        ### END SOLUTION

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it, backward adds gradients up and sends nothing."""
        # step 4
        ### BEGIN SOLUTION
        before, self.syncing = self.syncing, False
        try:
            yield
        finally:
            self.syncing = before
        ### END SOLUTION

# %% tests hand_ddp
check("hand_ddp", HandDDP)

# %% measure
seen = rankzero.watch(two_steps, lambda model: HandDDP(model, 4 * 400 * 401), ranks=2)
last = max(mark.seconds for mark in seen.marks if mark.rank == 0)
first = max(mark.seconds for mark in seen.marks if mark.rank == 0 and mark.name == "backward")
early = sum(first < message.issued_seconds < last for message in seen.of_rank(0))
print(f"begun before the last gradient: {early} of 6     your guess: {my_guess}")
seen.timeline(since="backward")

# %% [markdown]
# Now the messages begin under the diamonds. A bar begins when a bucket is sent, and ends when `finish()` has waited
# for it. The last bucket never overlaps: behind it there is nothing left to compute. So the last bucket should not be
# the largest.
#
# On CPU ranks the gain is small, since sending and computing share the same few cores. On cards the link has hardware of
# its own. With just these three, buckets, overlap and skipped synchronization, PyTorch's authors report near-linear
# scaling to 256 GPUs (VLDB 2020).
#
# ### What `no_sync` saves
#
# **Predict.** 4 ranks, 4 MiB of gradients, 8 micro-batches per step. How many MiB does each rank send per step if it
# calls `finish()` after each micro-batch? And with `no_sync`? Type the second number.

# %% predict
my_guess = None  # MiB

# %% measure
def eight_micro_batches(quiet):
    """Where the calls of one optimizer step begin and end."""
    ddp = HandDDP(nn.Linear(1024, 1024, bias=False))
    begun = rankzero.moment().calls
    for number in range(8):
        with ddp.no_sync() if quiet and number < 7 else contextlib.nullcontext():
            (ddp(torch.randn(2, 1024)).square().mean() / 8).backward()
        if not quiet or number == 7:
            ddp.finish()
    return begun


sent = []
for quiet in (False, True):
    seen = rankzero.watch(eight_micro_batches, quiet, ranks=4)
    sent.append(sum(message.sent_bytes for message in seen.of_rank(0)[seen.results[0] :]))
print(f"{sent[0] / 2**20:g} and {sent[1] / 2**20:g} MiB     your guess: {my_guess}")
once = 2 * 3 / 4 * 4 * 2**20
measured_and_theory(["finish each time", "no_sync"], sent, [8 * once, once], "bytes that a rank sends in a step")

# %% [markdown]
# ## 6 · Against torch
#
# `torch.nn.parallel.DistributedDataParallel` does what yours does: the same broadcast, the same buckets of 25 MiB
# (the first one 1 MiB), the same hooks, in C++. `finish()` is hidden at the end of its backward. Three more
# differences: its `no_sync` must enclose *forward*, unused parameters need `find_unused_parameters=True`, and it sends
# buffers anew in each forward. Will yours be slower, and by what factor?

# %% measure
from torch.nn.parallel import DistributedDataParallel


def seconds_per_step(rounds=15):
    """Median seconds of a step, mine and torch's, in turn."""
    trained = []
    for wrap in (HandDDP, DistributedDataParallel):
        torch.manual_seed(0)
        trained.append(wrap(nn.Sequential(*(nn.Linear(600, 600) for _ in range(6)))))
    x, taken = torch.randn(64, 600), [[], []]
    for turn in range(rounds):
        for which in (0, 1) if turn % 2 else (1, 0):
            dist.barrier()
            started = time.perf_counter()
            trained[which](x).square().mean().backward()
            if which == 0:
                trained[which].finish()
            taken[which].append(time.perf_counter() - started)
            trained[which].zero_grad()
    return [sorted(times)[rounds // 2] for times in taken]


mine, theirs = map(max, zip(*rankzero.run(seconds_per_step, ranks=2, record=False)))
print(f"yours {1e3 * mine:.1f} ms, torch's {1e3 * theirs:.1f} ms, ratio {mine / theirs:.2f}")

# %% [markdown]
# `benchmarks/ddp.py` of the repository repeats this with 20 million parameters. On two cores the reference took BENCH2
# of torch's time with 2 ranks and BENCH4 with 4 (1 December 2026, torch 2.13), since it copies each gradient once, where
# torch copies it into the bucket and back. With `gradient_as_bucket_view=True` torch does it as you do, and both are
# equally fast.
#
# ## 7 · A case: 42 days in 36 hours
#
# **A question from practice.** "20 million images, 100 epochs. One card needs 42 days. Use DDP; I need it in 36 hours.
# We have a node with 8 of these cards." What do you answer?
#
# **Predict.** How many times as fast must it be?

# %% predict
my_guess = None  # times

# %% measure
images, single_hours, deadline_hours = 20e6 * 100, 42 * 24, 36
print(f"one card: {images / single_hours / 3600:.0f} images/s; needed: {images / deadline_hours / 3600:,.0f} images/s")
print(f"{single_hours / deadline_hours:.1f} times as fast     your guess: {my_guess}")
print(f"8 cards at 100 %: {single_hours / 8:.0f} hours, {single_hours / 8 / 24:.2f} days")
for cards in (28, 32, 40):
    print(f"{cards} cards must reach an efficiency of {single_hours / deadline_hours / cards:.1%}")

# %% [markdown]
# So the answer begins: *not on one node with this card*. 28.0 times as fast needs 28 cards that lose nothing. The
# **efficiency** is the speed-up divided by the number of cards, and it falls as the number grows: stragglers, the last
# bucket, the network. Cards come in whole nodes.
#
# ### Exercise `gpus_for_deadline`
#
# **Goal** The smallest number of cards, in whole nodes, that meets a deadline.
#
# **Difficulty** ●○○ · **Time** 10 minutes · **Points** 2
#
# **Expected** for 1008 hours, a deadline of 36 and `per_node=8`: 32 at an efficiency of 0.9, 40 at 0.8.
#
# - `efficiency(gpus)` is asked for the number of cards that you try. Speed is `gpus * efficiency(gpus)`.
# - It may fall so fast that more cards are slower, and rise again: try every multiple of `per_node`, up to `max_gpus`
#   itself. Exactly on time is in time.
# - `ValueError` if no number is enough.

# %% solution gpus_for_deadline
# exercise: gpus_for_deadline
from collections.abc import Callable


def gpus_for_deadline(
    single_gpu_hours: float,
    deadline_hours: float,
    efficiency: Callable[[int], float],
    per_node: int,
    max_gpus: int = 4096,
) -> int:
    """The smallest multiple of ``per_node`` with which the run meets its deadline.

    Args:
        efficiency: by number of cards, the speed-up divided by that number.

    Raises:
        ValueError: no number up to ``max_gpus`` is enough.
    """
    ### BEGIN SOLUTION
    for gpus in range(per_node, max_gpus + 1, per_node):
        if single_gpu_hours <= deadline_hours * gpus * efficiency(gpus):
            return gpus
    raise ValueError(f"no number of cards up to {max_gpus} meets {deadline_hours} hours")
    ### END SOLUTION

# %% tests gpus_for_deadline
check("gpus_for_deadline", gpus_for_deadline)

# %% [markdown]
# Put numbers in. Eight V100s trained ResNet-50 at 92.6 % efficiency (Lambda's benchmark). From node to node, assume
# that every doubling costs another 4 %.
#
# **Predict.** How many cards does that take?

# %% predict
my_guess = None  # cards

# %% measure
def efficiency(gpus):
    return 0.926 * 0.96 ** math.log2(max(1, gpus / 8))


cards = gpus_for_deadline(single_hours, deadline_hours, efficiency, per_node=8)
for gpus in (8, 16, 32, cards):
    print(f"{gpus:>3} cards: {efficiency(gpus):.1%}, {single_hours / gpus / efficiency(gpus):5.1f} hours")
print(f"it takes {cards}     your guess: {my_guess}")

# %% [markdown]
# 32 cards miss it by an hour: they would need 87.5 %. Now what the rest of the machine must deliver.

# %% measure
needed = images / deadline_hours / 3600
print(f"decode: {math.ceil(needed / 800)} cores at 800 images/s each; storage: {needed * 110e3 / 1e9:.1f} GB/s at 110 KB an image")
gradient_bytes, backward_ms = 25.56e6 * 4, 2 / 3 * 256 / 551 * 1e3
for name, gb_per_s in (("10 Gbit/s Ethernet", 1.2), ("100 Gbit/s", 12)):
    all_reduce_ms = 2 * 31 / 32 * gradient_bytes / gb_per_s / 1e6
    print(f"{name}: all-reduce of ResNet-50's {gradient_bytes / 1e6:.0f} MB over 32 cards {all_reduce_ms:.0f} ms")
print(f"to hide it there is backward, {backward_ms:.0f} ms for 256 images on this card; on one 4 times as fast", end=" ")
print(f"{backward_ms / 4:.0f} ms")

# %% [markdown]
# - **Data** is what one forgets. 800 images/s is what one core decodes and crops (JPEG of 50 KB); with larger images and
#   augmentation count on 40 cores or more, spread over the nodes. 2.2 TB must be near each of them.
# - **Network**: 10 Gbit/s hides behind the backward of this slow card, and no longer behind that of a fast one.
#   Without overlap, each of these all-reduces would be added to every step.
# - **Batch**: 32 × 256 = 8192 images. Learning rate times 32, with a warm-up (Goyal et al., 2017); beyond 8192 accuracy
#   suffers.
#
# Or change the card. Mixed precision alone makes a V100 2.26 times as fast (369 → 833 images/s); then 16 cards at 78 %
# are enough. Here are three nodes of 8 and a pair of nodes, priced:

# %% measure
offers = (
    ("8 x H100 SXM, RunPod secure", 8, 22_059, 3.99, "9 November 2026"),
    ("8 x H100 SXM, Lambda", 8, 22_059, 3.99, "25 September 2026"),
    ("8 x H100 SXM, AWS p5.48xlarge", 8, 22_059, 6.88, "6 September 2026"),
    ("8 x A100 80 GB SXM, Lambda", 8, 11_439, 2.79, "25 September 2026"),
    ("2 pods of 8 x RTX 4090 at 92 %, RunPod secure", 16, 0.92 * 16 * 1301, 0.74, "25 September 2026"),
)
for name, gpus, per_second, usd, date in offers:
    hours = images / per_second / 3600
    late = "" if hours <= deadline_hours else "   too late"
    print(f"{name:46} {hours:5.1f} h  ${gpus * hours * usd:>6,.0f}   (${usd}/card-hour, {date}){late}")

# %% [markdown]
# Eight H100s do it on one node, at one price at two specialists and at 1.7 times that at AWS. The 4090s are cheapest, but
# the two pods must be joined by a network, and P2P between their cards is switched off. All speeds are Lambda's, for
# ResNet-50 in mixed precision; a loader that keeps up is assumed, and storage comes on top.
#
# ### The same on GPUs
#
# - **Colab's single T4**: your ranks stay on gloo. There is nothing to parallelise.
# - **Kaggle's two T4s**: a T4 has no bf16. Use fp16 with a `GradScaler`: `scaler.scale(loss).backward()`,
#   `ddp.finish()`, `scaler.step(optimizer)`. Average *before* the scaler looks for infinities, so that all ranks see the
#   same ones and skip the same steps.
# - **Two or more rented cards**: copy `cloud/ddp.py` of the repository and this notebook there, and run
#   `torchrun --standalone --nproc-per-node 2 ddp.py --answers 05_ddp.ipynb`. It trains with your HandDDP and with
#   torch's, and prints step times and bytes. On two or more RTX 4090 set `NCCL_P2P_DISABLE=1` if it hangs.

# %% measure
def on_cards(rounds=10):
    card = torch.device("cuda", dist.get_rank())
    x, taken = torch.randn(64, 2048, device=card), []
    for wrap in (HandDDP, DistributedDataParallel):
        model = wrap(nn.Sequential(*(nn.Linear(2048, 2048, device=card) for _ in range(8))))
        for turn in range(rounds + 2):
            if turn == 2:  # two steps to warm up
                torch.cuda.synchronize(card)
                started = time.perf_counter()
            model(x).square().mean().backward()
            if wrap is HandDDP:
                model.finish()
            model.zero_grad()
        torch.cuda.synchronize(card)
        taken.append((time.perf_counter() - started) / rounds)
    return taken


gpus = torch.cuda.device_count()
if gpus >= 2:
    mine, theirs = map(max, zip(*rankzero.run(on_cards, ranks=gpus, record=False)))
    print(f"{gpus} cards, NCCL: yours {1e3 * mine:.2f} ms, torch's {1e3 * theirs:.2f} ms per step")
else:
    print(f"GPUs here: {gpus}. With two or more, this cell trains 33.6 million parameters with yours and with torch's.")
    print(f"Their 134 MB would take two T4s on PCIe 3 about {8 * 2048 * 2049 * 4 / 12e9 * 1e3:.0f} ms at 12 GB/s.")

# %% [markdown]
# ## What have you learnt?
#
# Click through the questions. Then type your letters in the cell below in place of `None`, and delete the
# line that raises `NotImplementedError`. Once all three are right, the check tells you why.

# %% quiz
quiz("quiz_05")

# %% solution quiz_05
# exercise: quiz_05
answers = {"q1": None, "q2": None, "q3": None}  # a letter each, such as "b"
### BEGIN SOLUTION
answers = {"q1": "c", "q2": "a", "q3": "d"}
### END SOLUTION

# %% tests quiz_05
check("quiz_05", answers)

# %% [markdown]
# ### In your own words
#
# The boss of section 7 insists: "DDP is linear. Eight cards, and it takes a week less each time we double them." What do
# you answer? Say what DDP can and cannot do for the 36 hours, what you would change, and what you would measure on one
# node before you rent four. Four or five sentences. (2 points, read by a person.)

# %% words words_05 2
# ### BEGIN SOLUTION
# 42 days in 36 hours is 28.0 times as fast, so eight of these cards take 5.25 days even if nothing is lost: DDP divides
# the work, it does not make a card faster. With the same card I need four nodes at 87.5 % or better, or five at 70 %;
# or I change the card or the precision, such as one node of eight H100s in mixed precision, which takes about 25 hours
# and 800 dollars. Linear it is only while the all-reduce hides behind backward and the loader keeps up. So before I rent
# I measure on one node: images per second of one and of eight cards, the same with data that is already in memory, to
# see whether decoding is the limit, and the time of the all-reduce against that of backward.
#
# Rubric: 1 point for 28 times against 8 cards and one sound way out with numbers; 1 point for at least two
# measurements that tell computing, data loading and network apart.
# ### END SOLUTION

# %%
progress()

# %% [markdown]
# **Next: lesson 06**, in which the ranks stop holding n copies of everything.
#
# ### Sources
#
# - S. Li and others, *PyTorch Distributed: Experiences on Accelerating Data Parallel Training*, VLDB 2020, arXiv
#   2006.15704: buckets, overlap, `no_sync`, and the scaling.
# - P. Goyal and others, *Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour*, 2017, arXiv 1706.02677.
# - Images per second: Lambda's deeplearning-benchmark, 17 December 2025 (ResNet-50; V100 369 in fp32, 833 in fp16 and
#   6174 on eight; RTX 4090 1301; eight A100 SXM 11,439; eight H100 SXM 22,059).
# - Prices: RunPod as of 9 November and 25 September 2026, Lambda as of 25 September 2026, AWS us-east-1 on demand as of
#   6 September 2026. They rise as well as fall: RunPod's H100 SXM went from $2.69 in March to $3.99 in November.
# - Network cards: 12 GB/s from 100 Gbit/s, NVIDIA in nccl-tests issue 119, November 2022; 1.2 GB/s from 10 Gbit/s
#   scaled from it. Cards without P2P: NVIDIA/nccl issue 1309, 3 June 2024.
# - Decoding: measured for this course on one EPYC core with Pillow 13, 795 to 849 images/s (500 × 375 JPEG of 50 KB,
#   random crop to 224).
