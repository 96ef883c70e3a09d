# %% [markdown]
# # 06 · ZeRO from scratch: who holds what
#
# {{badges}}
#
# In plain data parallelism every rank holds the same weights, averaged gradients and optimizer states: n copies
# of everything. ZeRO keeps one, spread over the ranks. You write all three stages, and watch the bytes fall:
# first the states, then the gradients, then the weights themselves.
#
# **After this lesson you can**
#
# - say what each of 64 ranks holds of a model with 7.5 billion parameters: 120 GB in plain data parallelism,
#   31.4, 16.6 and 1.9 GB in stages 1, 2 and 3;
# - write an AdamW whose states are sharded: 2 bytes per parameter on 4 ranks instead of 8;
# - replace an all-reduce by a reduce-scatter, half its bytes, so that a rank keeps a quarter of the gradients;
# - gather and free 8 blocks one by one, so that never more than 4 of them are whole, backward included;
# - clip by the norm over all ranks with a single number on the wire;
# - cut a checkpoint of 4 ranks for 3, and train on.
#
# **You need** lesson 04 (all-gather, reduce-scatter), lesson 05 (averaged gradients), `nn.Module`, and what
# `p.grad` is. **Time** about 3 hours; there is a good place to stop half-way. **Points** 20 for the exercises, 3
# for the quiz, 2 for an answer in your own words.

# %% setup

# %%
import time

import torch
import torch.distributed as dist
from torch import nn

import rankzero
from rankzero.draw import measured_and_theory, memory_by_rank

# %% [markdown]
# ## 1 · Sixteen bytes per parameter
#
# **A question from practice.** A model has 7.5 billion parameters. Its weights are 15 GB in bf16, and your 64
# cards have 80 GB each. Why does plain data parallelism run out of memory before the first step is over?
#
# Mixed precision with AdamW holds, for each parameter:
#
# | what | bytes | whole in stage | sharded from stage |
# |---|---|---|---|
# | weight, bf16 | 2 | 0, 1, 2 | 3 |
# | gradient, bf16 | 2 | 0, 1 | 2 |
# | AdamW's part: fp32 copy of the weight (*master*), first and second moment | 12 | 0 | 1 |
#
# Together 16. **Stage 0** is plain data parallelism. **Stage 1** shards AdamW's part: an update needs no
# neighbour, so each rank may update its own elements alone. **Stage 2** shards the gradients too, since a rank
# needs only those of the elements that it updates. **Stage 3** shards the weights, and gathers them whenever a
# layer needs them. What is sharded costs each of n ranks 1/n. Activations come on top.
#
# **Predict.** How many GB does each of 64 ranks hold in stage 1?

# %% predict
my_guess = None  # GB (10**9 bytes)

# %% [markdown]
# ### Exercise `zero_bytes`
#
# **Goal** The bytes that one rank holds, by stage.
#
# **Difficulty** ●○○ · **Time** 10 minutes · **Points** 2
#
# **Expected** for 1,000 parameters on 4 ranks: 16,000, then 7,000, 5,500 and 4,000.
#
# A part that does not divide is rounded up. On one rank all stages are the same.
#
# <details><summary>Hint</summary>
#
# Three parts, and each is divided by `world_size` if the stage is high enough. `-(-a // b)` rounds up.
#
# </details>
# %% solution zero_bytes
# exercise: zero_bytes
def zero_bytes(parameters: int, world_size: int, stage: int) -> int:
    """Bytes of weights, gradients and AdamW's part on one rank, in mixed precision.

    Args:
        parameters: of the whole model.
        world_size: number of ranks.
        stage: 0 to 3.
    """
    ### BEGIN SOLUTION
    def held(bytes_each, sharded_from):
        ranks = world_size if stage >= sharded_from else 1
        return -(-bytes_each * parameters // ranks)

    weights, gradients, adamw = held(2, 3), held(2, 2), held(12, 1)
    return weights + gradients + adamw
    ### END SOLUTION

# %% tests zero_bytes
check("zero_bytes", zero_bytes)

# %% measure
for ranks in (1, 8, 64, 1024):
    gb = [zero_bytes(7_500_000_000, ranks, stage) / 1e9 for stage in range(4)]
    print(f"{ranks:>5} ranks" + "".join(f"{one:>9.1f}" for one in gb) + "   GB in stages 0 to 3")
print("your guess:", my_guess)

# %% [markdown]
# The row for 64 ranks is the first figure of the ZeRO paper: 120, 31.4, 16.6 and 1.9 GB. Read stage 1 downwards,
# too: it ends at 30 GB, since weights and gradients stay whole.
#
# From here on everything is fp32, so that results can be compared to the last digit: 4 + 4 + 8 bytes.
#
# ## 2 · One flat tensor
#
# **A question from practice.** A model has hundreds of tensors of all shapes. How do you cut them into n equal
# shards?
#
# You lay all elements in one row, add zeros until the length divides, and cut. That a shard begins in the middle
# of a matrix does not matter: AdamW works element by element. The way back must not copy. A **view** shows the same
# memory in another shape:

# %%
flat = torch.arange(8.0)
matrix = flat[2:8].view(2, 3)
matrix[0, 0] = 100
print(flat.tolist(), "| cut for 4 ranks:", flat.view(4, -1).tolist())

# %% [markdown]
# ### Exercise `flatten_pad`
#
# **Goal** Two functions. `flatten_pad(tensors, world_size)` gives one flat tensor. `unflatten(flat, shapes)`
# gives the tensors back, as views.
#
# **Difficulty** ●○○ · **Time** 10 minutes · **Points** 2
#
# **Expected** for `[[1, 2], [3, 4]]` and `[5]` on 4 ranks: `[1, 2, 3, 4, 5, 0, 0, 0]`, and back.
#
# - As few zeros as possible, and only at the very end. Same dtype as the tensors.
# - `unflatten` ignores what lies behind the last tensor. A shape may be `[]`: a single number.
#
# <details><summary>Hint</summary>
#
# `-numel % world_size` is what is missing to the next multiple. `flat.split(sizes)` cuts a tensor into views;
# `math.prod(shape)` counts elements, 1 for `[]`.
#
# </details>
# <details><summary>If you see this error</summary>
#
# - *more padding than needed*: 8 elements on 4 ranks need none, not 4.
# - *is a copy*: slices, `split` and `view` share memory; `torch.cat`, `clone` and `torch.tensor` do not.
#
# </details>

# %% solution flatten_pad
# exercise: flatten_pad
import math

import torch
from torch import Tensor


def flatten_pad(tensors: list[Tensor], world_size: int) -> Tensor:
    """All elements in one row, with zeros at its end up to a multiple of ``world_size``.

    Args:
        tensors: any shapes, one dtype; at least one.
    """
    ### BEGIN SOLUTION
    numel = sum(tensor.numel() for tensor in tensors)
    padding = tensors[0].new_zeros(-numel % world_size)
    return torch.cat([*(tensor.reshape(-1) for tensor in tensors), padding])
    ### END SOLUTION


def unflatten(flat: Tensor, shapes: list[torch.Size]) -> list[Tensor]:
    """Views of ``flat`` in these shapes, one after the other; what lies behind them is left out."""
    ### BEGIN SOLUTION
    sizes = [math.prod(shape) for shape in shapes]
    pieces = flat[: sum(sizes)].split(sizes)
    return [piece.view(shape) for piece, shape in zip(pieces, shapes)]
    ### END SOLUTION

# %% tests flatten_pad
check("flatten_pad", flatten_pad, unflatten)

# %% [markdown]
# ## 3 · Stage 1: an optimizer in n parts
#
# **A question from practice.** After lesson 05 every rank has the same averaged gradients and makes the same
# update. Rank 3 computes what rank 0 computes, and holds 8 bytes per parameter for it. How do you stop that?
#
# Each rank updates its own shard, with states for that shard alone. Then every rank needs the others' updates:
#
# > own shard of the gradients → AdamW on the own shard → everybody's shards to everybody
#
# There is less to copy if the parameters are **views of one flat tensor**. `parameter.data` may be set to any tensor
# of the same dtype:

# %%
layer = nn.Linear(2, 1)
flat = torch.cat([layer.weight.detach().reshape(-1), layer.bias.detach()])
layer.weight.data, layer.bias.data = flat[:2].view(1, 2), flat[2:]
flat.fill_(7)
print(layer.weight.tolist(), layer.bias.tolist())

# %% [markdown]
# A slice of such a tensor, with a `.grad` of its own, is something that `torch.optim.AdamW` can train.
#
# **Predict.** 4 ranks train 1,000,000 parameters in fp32. Plain AdamW keeps 8,000,000 bytes of states on each
# rank. How many does yours?

# %% predict
my_guess = None  # bytes per rank

# %% [markdown]
# ### Exercise `zero1_adamw`
#
# **Goal** `ShardedAdamW`, an optimizer that updates as AdamW does and holds 1/n of its states.
#
# **Difficulty** ●●● · **Time** 40 minutes · **Points** 5
#
# **Expected** on 4 ranks: after 5 steps the parameters are those of `torch.optim.AdamW`, on every rank the very
# same bits, while a rank holds 8·⌈N/4⌉ bytes of states.
#
# - `params` are parameters, or groups with settings of their own. If a scheduler changes `lr` in `param_groups`, the
#   next step uses it.
# - Gradients are averaged already when `step()` is called. A parameter whose `.grad` is None is left alone.
# - The updates travel once: together, the ranks send (n−1) times the size of the parameters.
# - `group` is the process group; None stands for all ranks.
#
# **Free to choose** flat shards or whole parameters per rank, padding per group or per parameter, torch's AdamW
# or your own, all-gather or broadcasts by the owners.
#
# <details><summary>Hint 1</summary>
#
# In the constructor, for each group: one flat tensor, its parameters as views of it, and the slices of these
# parameters that lie in this rank's piece. One `torch.optim.AdamW` over all slices, with the same groups.
#
# </details>
# <details><summary>Hint 2</summary>
#
# In `step()`: copy the settings of each group over, hang the matching slice of `parameter.grad` on each slice of
# a parameter (or None), and let AdamW step. Since all are views, the parameters have changed where they are yours.
#
# </details>
# <details><summary>Hint 3</summary>
#
# For the last part each rank broadcasts its own piece of the flat tensor: n calls with `async_op=True`, then n
# times `wait()`. `group_src=owner` counts within the group. An all-gather does the same in one call (on gloo it took
# twice as long).
#
# </details>
# <details><summary>If you see this error</summary>
#
# - *The parameters never change*: a copy was updated. `flat[a:b]` is a view, `torch.cat` is not.
# - *states … on every rank*: an AdamW over all parameters makes states for all of them.
# - *can't optimize a non-leaf Tensor*: slice `parameter.detach()`, not the parameter.
#
# </details>

# %% solution zero1_adamw
# exercise: zero1_adamw
import torch
import torch.distributed as dist
from torch import Tensor


class ShardedAdamW(torch.optim.Optimizer):
    """AdamW, of whose states each rank holds a shard.

    Args:
        params: as for `torch.optim.AdamW`; the same on all ranks.
        group: the process group; None for all ranks.
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, group=None):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        ### BEGIN SOLUTION
        self.group, self.n = group, dist.get_world_size(group)
        rank = dist.get_rank(group)
        self.flats = [lay_out(settings["params"], self.n) for settings in self.param_groups]
        self.slices = [
            slices_within(settings["params"], flat.view(self.n, -1)[rank])
            for settings, flat in zip(self.param_groups, self.flats)
        ]
        own = [{"params": [mine for _, mine, _ in slices]} for slices in self.slices]
        self.adamw = torch.optim.AdamW(own, fused=True)  # one pass over memory instead of a dozen
        ### END SOLUTION

    @torch.no_grad()
    def step(self, closure=None):
        """Update this rank's shard, and bring everybody's shards to everybody."""
        ### BEGIN SOLUTION
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.update_own_slices()
        for flat in self.flats:
            publish(flat, self.group)
        return loss

    def update_own_slices(self) -> None:
        for settings, own, slices in zip(self.param_groups, self.adamw.param_groups, self.slices):
            own.update({name: value for name, value in settings.items() if name != "params"})
            for parameter, mine, where in slices:
                mine.grad = None if parameter.grad is None else parameter.grad.reshape(-1)[where]
        self.adamw.step()
        self.adamw.zero_grad()  # these were views of whole gradients


def lay_out(parameters: list[Tensor], n: int) -> Tensor:
    """One flat tensor with all values; the parameters become views of it."""
    flat = flatten_pad([parameter.detach() for parameter in parameters], n)
    for parameter, view in zip(parameters, unflatten(flat, [parameter.shape for parameter in parameters])):
        parameter.data = view
    return flat


def slices_within(parameters: list[Tensor], piece: Tensor) -> list[tuple[Tensor, Tensor, slice]]:
    """What of the parameters lies in a piece of their flat tensor: parameter, the part as a view, and which part."""
    first = piece.storage_offset()
    last = first + piece.numel()
    slices, start = [], 0
    for parameter in parameters:
        where = slice(max(first - start, 0), min(last - start, parameter.numel()))
        if where.start < where.stop:
            slices.append((parameter, parameter.detach().view(-1)[where], where))
        start += parameter.numel()
    return slices


def publish(flat: Tensor, group) -> None:
    """Every rank broadcasts its own piece, all at once: the bytes of an all-gather."""
    pieces = flat.view(dist.get_world_size(group), -1)
    works = [dist.broadcast(piece, group_src=owner, group=group, async_op=True) for owner, piece in enumerate(pieces)]
    for work in works:
        work.wait()
    ### END SOLUTION

# %% tests zero1_adamw
check("zero1_adamw", ShardedAdamW)

# %% [markdown]
# `rankzero.watch` runs a function on ranks and counts messages and memory. Inside it, `rankzero.moment()` tells
# what lives just now: `live_bytes` of all tensors made since the call began.

# %% measure
def state_bytes(make_optimizer):
    """Bytes of optimizer states on this rank, for a model of a million parameters."""
    model = nn.Linear(1000, 1000, bias=False)
    optimizer = make_optimizer(model.parameters())
    before = rankzero.moment().live_bytes
    model.weight.grad = torch.ones(1000, 1000)
    optimizer.step()
    optimizer.zero_grad()
    return rankzero.moment().live_bytes - before


print("plain AdamW: ", rankzero.watch(state_bytes, torch.optim.AdamW, ranks=4).results)
print("ShardedAdamW:", rankzero.watch(state_bytes, ShardedAdamW, ranks=4).results)
print("your guess:  ", my_guess)

# %% [markdown]
# A quarter, and 4 bytes for a step counter.
#
# ## 4 · Stage 2: only my part of the gradients
#
# **A question from practice.** The all-reduce brings the whole averaged gradient to every rank. Rank r uses a
# quarter of it, and throws the rest away. What does that cost, and how do you get only the quarter?
#
# You know the answer from lesson 04: an all-reduce is a reduce-scatter and an all-gather, and the first half
# is enough. Torch has both:

# %%
# %%ranks 4
gradients = torch.arange(8.0) + rank  # the same elements on each rank, other values
shard = torch.empty(2)
dist.reduce_scatter_tensor(shard, gradients)  # rank r gets piece r of the sum (later: reduce_scatter_single)
(shard / world_size).tolist()

# %% [markdown]
# **Predict.** 4 ranks hold 16 MiB of gradients each. An all-reduce makes each of them send 24 MiB. And a
# reduce-scatter?

# %% predict
my_guess = None  # MiB

# %% [markdown]
# ### Exercise `zero2_gradients`
#
# **Goal** `Zero2(model)`: a rank keeps gradients and states of its shard only.
#
# **Difficulty** ●●○ · **Time** 30 minutes · **Points** 3
#
# **Expected** for gradients of 5 elements on 2 ranks: rank 0 holds the means of the first 3 elements, rank 1
# those of the other 2, and a zero.
#
# Fill in the steps of the skeleton in turn. The check judges them by their numbers:
#
# 1. **Constructor.** This rank's shard of the weights, as in stage 1, and an AdamW for it.
# 2. **`backward(loss)`** computes gradients, reduces them, and leaves this rank's shard of their *mean*. After it
#    every `parameter.grad` is None. Several calls add up. A parameter without a gradient counts as zero.
# 3. **`step()`** updates the shard and gives all ranks the whole weights; **`zero_grad()`** clears the shard's
#    gradient.
#
# - S = ⌈N/n⌉. `gradient_shard()` holds the elements [r·S, (r+1)·S) of all gradients in the order of
#   `model.parameters()`, padded with zeros.
# - Each backward sends (n−1)/n times the gradients' size per rank. Between backward and step a rank holds
#   shards besides the weights, nothing else.
#
# **Free to choose** reduce-scatter, or a reduce to each owner; hooks or not; how the weights are gathered.
#
# <details><summary>Hint 1</summary>
#
# With a flat tensor as in stage 1, `self.mine = flat.view(n, -1)[rank]` is both: a part of the weights, and
# something that AdamW can train. Its `.grad` is the place for the shard.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Backward adds to a `.grad` that is there already. So let each `parameter.grad` be a view of one flat tensor of
# zeros before `loss.backward()`: nothing has to be copied, and an unused parameter has its zeros.
#
# </details>
# <details><summary>If you see this error</summary>
#
# - *never divided by the world size*: the reduce-scatter gives a sum.
# - *Only the last backward counts*: the second call has to add.
# - *a tensor of all gradients stays alive*: a shard that is a slice of the flat gradient keeps all of it.
# - *'NoneType' object …*: a parameter that the loss does not use has no gradient.
#
# </details>

# %% solution zero2_gradients
# exercise: zero2_gradients
import torch
import torch.distributed as dist
from torch import Tensor, nn


class Zero2:
    """Trains a model with AdamW; gradients and states are sharded.

    Args:
        model: the same on all ranks; it keeps its whole weights.
        group: the process group; None for all ranks.
    """

    def __init__(
        self, model: nn.Module, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, group=None
    ):
        # step 1: this rank's shard of the weights, and an AdamW for it
        ### BEGIN SOLUTION
        self.group, self.n = group, dist.get_world_size(group)
        self.parameters = list(model.parameters())
        self.weights = lay_out(self.parameters, self.n)
        self.mine = self.weights.view(self.n, -1)[dist.get_rank(group)]
        self.adamw = torch.optim.AdamW([self.mine], lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        ### END SOLUTION

    def backward(self, loss: Tensor) -> None:
        """Add this rank's shard of the mean gradient; no parameter keeps a gradient."""
        # step 2: whole gradients, then the shard of their mean, added to what is there
        ### BEGIN SOLUTION
        flat = expect_gradients(self.parameters, self.weights)
        loss.backward()
        shard = mean_shard(self.parameters, flat, self.n, self.group)
        self.mine.grad = shard if self.mine.grad is None else self.mine.grad + shard
        ### END SOLUTION

    def gradient_shard(self) -> Tensor:
        """This rank's shard of the mean gradient: ⌈N/n⌉ elements."""
        ### BEGIN SOLUTION
        return self.mine.grad
        ### END SOLUTION

    def step(self) -> None:
        """Update this rank's shard; afterwards all ranks have the same whole weights."""
        # step 3: AdamW, then everybody's shards for everybody
        ### BEGIN SOLUTION
        self.adamw.step()
        publish(self.weights, self.group)
        ### END SOLUTION

    def zero_grad(self) -> None:
        """Forget the shard's gradient."""
        ### BEGIN SOLUTION
        self.mine.grad = None


def expect_gradients(parameters: list[Tensor], weights: Tensor) -> Tensor:
    """A flat tensor of zeros like the weights', into which backward will add all gradients."""
    flat = torch.zeros_like(weights)
    for parameter, view in zip(parameters, unflatten(flat, [parameter.shape for parameter in parameters])):
        parameter.grad = view
    return flat


def mean_shard(parameters: list[Tensor], flat: Tensor, n: int, group) -> Tensor:
    """This rank's shard of the flat gradients' mean over the ranks; the parameters let go of theirs."""
    for parameter in parameters:
        parameter.grad = None
    shard = flat.new_empty(flat.numel() // n)
    dist.reduce_scatter_tensor(shard, flat, group=group)
    return shard.div_(n)
    ### END SOLUTION

# %% tests zero2_gradients
check("zero2_gradients", Zero2)

# %% measure
def backward_of_16_mebibytes():
    model = nn.Linear(2048, 2048, bias=False)
    zero = Zero2(model)
    loss = model(torch.ones(1, 2048)).sum()
    first = rankzero.moment().calls
    zero.backward(loss)
    return first, rankzero.moment().calls


seen = rankzero.watch(backward_of_16_mebibytes, ranks=4)
first, last = seen.results[0]
sent = sum(message.sent_bytes for message in seen.of_rank(0)[first:last])
print(f"rank 0 sent {sent / 2**20:g} MiB in backward     your guess: {my_guess}")

# %% [markdown]
# Half the bytes. The all-gather that was saved comes back in `step()`, but with *weights* instead of gradients:
# stage 2 sends what plain data parallelism sends, and holds far less.
#
# One thing is left to the large libraries. Here the whole gradient is there for a moment, before it is cut: the
# peak is no lower than in stage 1. DeepSpeed and FSDP reduce bucket by bucket while backward runs, as your
# `HandDDP` did.
#
# > **A good place to stop.** Save; next time run all cells up to here and go on.
#
# ## 5 · Stage 3: weights that come and go
#
# **A question from practice.** Even the weights alone are too large for one card. But a layer needs its weights
# only while it runs. Can the others stay in shards meanwhile?
#
# Yes. Cut the model into **blocks**, and for each block in turn:
#
# | | forward | backward |
# |---|---|---|
# | before | **gather** the block's weights | **gather** them again |
# | run | the block | the block's backward |
# | after | **free** them | **reduce-scatter** its gradients, **free** the weights |
#
# So one or two blocks are whole, all others are shards. The optimizer works on shards and sends nothing: the next
# gather does that.
#
# Three tools of autograd let you act at the right moments. `register_hook` on a tensor calls you when its
# gradient has been computed. That is just *before* the backward of whatever made this tensor:

# %%
x = torch.ones(2, requires_grad=True)
y = x * 2
z = y * 3
y.register_hook(lambda gradient: print("y's gradient is", gradient.tolist(), "; z's backward is over, y's comes next"))
z.sum().backward()

# %% [markdown]
# `saved_tensors_hooks` shows and changes what autograd keeps for backward. A *pack* function gets each tensor
# and returns what is to be kept instead; an *unpack* function turns that back into a tensor:

# %%
def pack(saved):
    print("autograd keeps a tensor of shape", list(saved.shape))
    return saved


layer, x = nn.Linear(5, 3), torch.ones(1, 5, requires_grad=True)
with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept):
    layer(x).sum()

# %% [markdown]
# There is the trap of stage 3: a linear layer keeps its *weight* (a transposed view), since the gradient of its
# input needs it. Setting `parameter.data` to an empty tensor frees nothing as long as the graph has that view. But
# pack may return a note, say "elements 0 to 15 of block 3", and unpack look them up when backward asks.
#
# The third tool is an `autograd.Function`: you write forward and backward yourself. What one does not save, the
# other computes again:

# %%
class SquareAgain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.again = lambda: 2 * x.detach()  # no graph is kept
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.again()


x = torch.tensor([3.0], requires_grad=True)
SquareAgain.apply(x).backward()
x.grad

# %% [markdown]
# **Predict.** 8 equal blocks on 4 ranks. If all were gathered at once, 8 blocks would be whole. How many blocks'
# worth of bytes lives at the peak of your backward, above the shards? Count whole weights, and whole gradients.

# %% predict
my_guess = None  # blocks

# %% [markdown]
# ### Exercise `zero3_module`
#
# **Goal** `Zero3(blocks)` trains an `nn.Sequential`, of which each rank holds shards.
#
# **Difficulty** ●●● · **Time** 60 minutes · **Points** 5
#
# **Expected** as on one process: outputs, gradients, weights. Between uses a rank holds ⌈N/n⌉ elements of each
# block. With 8 blocks at most 4 are whole at once, forward and backward (`fully_shard` itself needs about 3).
#
# The skeleton has two classes, and the check judges its steps by their numbers. First the block:
#
# 1. **Constructor**: cut the block's flat weights, keep this rank's shard, free the rest.
# 2. **`gather()`** makes `whole`, the flat tensor of all shards, and the parameters views of it.
# 3. **`free()`** lets go of `whole` and of all views. `pack` and `unpack` see to it that autograd holds none.
#
# With these, `Zero3.forward` and `full_state_dict` are a few lines. Then backward:
#
# 4. **`before_backward`** is called when a block's backward is about to begin. Then that of the block *behind* it
#    is over. So: finish that one, then gather this one.
# 5. **`reduce_gradients()`** leaves this rank's shard of the mean gradient, adding to what is there. The last
#    block to finish is the first of the model: `backward(loss)` sees to that.
# 6. **`step()`** and **`zero_grad()`**, on shards.
#
# - Blocks may have no weights, or unequal sizes; the first may get integers (an embedding). A block's own forward
#   may call `torch.utils.checkpoint.checkpoint(…, use_reentrant=False)`.
# - `gradient_shards()` is a list with one shard for each block that has weights: ⌈N/n⌉ elements of its flat
#   gradients. `full_state_dict()` returns on every rank what `blocks.state_dict()` would, whole.
#
# **Free to choose** everything else: resize the storage of `whole` instead of packing notes, compute blocks again
# in an `autograd.Function`, use module hooks, gather ahead. `ShardedBlock` is a proposal.
#
# <details><summary>Hint 1</summary>
#
# A tensor that autograd wants to save lies in `whole` if both have the same
# `untyped_storage().data_ptr()`. Then its shape, stride and `storage_offset()` say all, and
# `whole.as_strided(shape, stride, offset)` brings it back.
#
# </details>
# <details><summary>Hint 2</summary>
#
# After a block's forward: `if x.requires_grad: x.register_hook(lambda gradient: …)`. Give the lambda its own
# block (`block=block`), else all of them mean the last one.
#
# </details>
# <details><summary>Hint 3</summary>
#
# First free, then reduce: gradients are tensors of their own, and do not need the weights any more. That saves
# a block at the peak.
#
# </details>
# <details><summary>If you see this error</summary>
#
# - *autograd saves what backward needs*: the trap above. Are pack and unpack in place while the block runs?
# - *never reduced*: nobody finishes the block that comes last in backward, which is the first of the model.
# - *expected a non-empty list of Tensors*: a block without weights.
# - *no attribute 'as_strided'*: this block was not gathered for backward.
#
# </details>

# %% solution zero3_module
# exercise: zero3_module
import torch
import torch.distributed as dist
from torch import Tensor, nn


class ShardedBlock:
    """One block, of which this rank holds a shard; its weights are whole only while they are used."""

    def __init__(self, block: nn.Module, group=None):
        # step 1: this rank's shard of the block's flat weights; the rest is freed
        ### BEGIN SOLUTION
        self.group, self.n = group, dist.get_world_size(group)
        self.parameters = list(block.parameters())
        self.shapes = [parameter.shape for parameter in self.parameters]
        flat = flatten_pad([parameter.detach() for parameter in self.parameters], self.n)
        self.mine = flat.view(self.n, -1)[dist.get_rank(group)].clone()
        self.free()
        ### END SOLUTION

    def gather(self) -> None:
        """Make the weights whole."""
        # step 2: all shards in one flat tensor, parameters as views of it
        ### BEGIN SOLUTION
        self.whole = self.mine.new_empty(self.n * self.mine.numel())
        dist.all_gather_into_tensor(self.whole, self.mine, group=self.group)
        for parameter, view in zip(self.parameters, unflatten(self.whole, self.shapes)):
            parameter.data = view
        ### END SOLUTION

    def free(self) -> None:
        """Hold nothing but the shard."""
        # step 3: nobody may refer to the whole any more, autograd included
        ### BEGIN SOLUTION
        self.whole = None
        for parameter in self.parameters:
            parameter.data = self.mine.new_empty(0)
        ### END SOLUTION

    def pack(self, saved: Tensor):
        """What autograd keeps in place of a tensor: a note where it is a part of the whole weights."""
        ### BEGIN SOLUTION
        if saved.untyped_storage().data_ptr() != self.whole.untyped_storage().data_ptr():
            return saved
        return saved.shape, saved.stride(), saved.storage_offset()
        ### END SOLUTION

    def unpack(self, kept) -> Tensor:
        """The tensor that a note stands for, out of weights that have been gathered again."""
        ### BEGIN SOLUTION
        return kept if isinstance(kept, Tensor) else self.whole.as_strided(*kept)
        ### END SOLUTION

    def reduce_gradients(self) -> None:
        """Add this rank's shard of the mean gradient; no parameter keeps a gradient."""
        # step 5
        ### BEGIN SOLUTION
        shard = mean_shard(self.parameters, self.gradients, self.n, self.group)
        self.gradients = None
        self.mine.grad = shard if self.mine.grad is None else self.mine.grad + shard
        ### END SOLUTION


class Zero3(nn.Module):
    """Trains blocks with AdamW; weights, gradients and states are sharded.

    Args:
        blocks: the same on all ranks. Their weights belong to this class from now on.
        group: the process group; None for all ranks.
    """

    def __init__(
        self, blocks: nn.Sequential, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, group=None
    ):
        super().__init__()
        self.blocks = blocks
        ### BEGIN SOLUTION
        self.sharded = {
            name: ShardedBlock(block, group)
            for name, block in blocks.named_children()
            if any(True for _ in block.parameters())
        }
        shards = [sharded.mine for sharded in self.sharded.values()]
        self.adamw = torch.optim.AdamW(shards, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        self.in_backward = None  # the block whose backward runs
        ### END SOLUTION

    def forward(self, x: Tensor) -> Tensor:
        """Run block after block; each is gathered for its turn only."""
        ### BEGIN SOLUTION
        for name, block in self.blocks.named_children():
            x = self.run(block, self.sharded[name], x) if name in self.sharded else block(x)
        return x

    def run(self, block: nn.Module, sharded: ShardedBlock, x: Tensor) -> Tensor:
        sharded.gather()
        with torch.autograd.graph.saved_tensors_hooks(sharded.pack, sharded.unpack):
            x = block(x)
        sharded.free()
        if x.requires_grad:
            x.register_hook(lambda gradient: self.before_backward(sharded))
        return x
        ### END SOLUTION

    def before_backward(self, sharded: ShardedBlock) -> None:
        """A block's backward is about to begin, so that of the block behind it is over."""
        # step 4
        ### BEGIN SOLUTION
        self.finish_backward()
        sharded.gather()
        sharded.gradients = expect_gradients(sharded.parameters, sharded.whole)
        self.in_backward = sharded

    def finish_backward(self) -> None:
        if self.in_backward is not None:
            self.in_backward.free()
            self.in_backward.reduce_gradients()
            self.in_backward = None
        ### END SOLUTION

    def backward(self, loss: Tensor) -> None:
        """Add each block's shard of the mean gradients."""
        ### BEGIN SOLUTION
        loss.backward()
        self.finish_backward()
        ### END SOLUTION

    def gradient_shards(self) -> list[Tensor]:
        """This rank's shard of the mean gradient, for each block that has weights."""
        ### BEGIN SOLUTION
        return [sharded.mine.grad for sharded in self.sharded.values()]
        ### END SOLUTION

    def step(self) -> None:
        """Update this rank's shards."""
        # step 6
        ### BEGIN SOLUTION
        self.adamw.step()
        ### END SOLUTION

    def zero_grad(self) -> None:
        """Forget the shards' gradients."""
        ### BEGIN SOLUTION
        self.adamw.zero_grad()
        ### END SOLUTION

    def full_state_dict(self) -> dict[str, Tensor]:
        """On every rank what `blocks.state_dict()` would be, whole; all ranks must call it."""
        ### BEGIN SOLUTION
        state = {}
        for name, block in self.blocks.named_children():
            if name in self.sharded:
                self.sharded[name].gather()
            state.update({f"{name}.{key}": value.clone() for key, value in block.state_dict().items()})
            if name in self.sharded:
                self.sharded[name].free()
        return state
        ### END SOLUTION

# %% tests zero3_module
check("zero3_module", Zero3)

# %% [markdown]
# ## 6 · All stages side by side
#
# The same model in four ways: 8 blocks, 1.05 million parameters, 4 ranks. For stages 0 and 1 whole gradients are
# averaged, as in lesson 05.

# %%
class WholeGradients:
    """Stages 0 and 1: whole gradients, averaged by all-reduces; any optimizer."""

    def __init__(self, model, optimizer):
        self.parameters, self.optimizer = list(model.parameters()), optimizer
        self.step, self.zero_grad = optimizer.step, optimizer.zero_grad

    def backward(self, loss):
        loss.backward()
        for parameter in self.parameters:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def make_blocks(width=362, count=8):
    torch.manual_seed(0)  # the same weights on every rank
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(count)))


def trainer(stage):
    """A stage's forward, and what has its backward, step and zero_grad."""
    blocks = make_blocks()
    if stage == 3:
        zero = Zero3(blocks)
        return zero, zero
    if stage == 2:
        return blocks, Zero2(blocks)
    return blocks, WholeGradients(blocks, (ShardedAdamW if stage else torch.optim.AdamW)(blocks.parameters()))


def one_step(stage):
    """What this rank holds in the second step, its calls in that step, and the loss."""
    forward, zero = trainer(stage)
    weights = rankzero.moment().live_bytes
    batch = torch.randn(4, 362, generator=torch.Generator().manual_seed(dist.get_rank()))
    for _ in range(2):
        zero.zero_grad()
        before = rankzero.moment(restart_peak=True)
        loss = forward(batch).square().mean()
        last_loss = loss.item()
        zero.backward(loss)
        del loss
        after = rankzero.moment()
        zero.step()
    held = {
        "weights": weights,
        "gradients": after.live_bytes - before.live_bytes,
        "AdamW's states": before.live_bytes - weights,
        "for a moment": after.peak_bytes - after.live_bytes,
    }
    return held, (before.calls, rankzero.moment().calls), last_loss

# %% [markdown]
# **Predict.** Per step, plain data parallelism sends 2(n−1)/n times the size of the gradients. Your stage 1
# all-reduces the gradients and then sends the updates. Your stage 2 reduce-scatters and sends the weights. Your
# stage 3 gathers weights twice, and reduce-scatters. Which stages send more than stage 0?

# %% predict
my_guess = None  # such as [1, 2, 3]

# %% measure
runs = {f"stage {stage}": rankzero.watch(one_step, stage, ranks=4) for stage in range(4)}
for name, seen in runs.items():
    print(name, "losses:", [round(loss, 7) for *_, loss in seen.results])
memory_by_rank({name: [held for held, *_ in seen.results] for name, seen in runs.items()})

# %% [markdown]
# The losses agree, the bars do not: a quarter of the states from stage 1 on, of the gradients from stage 2 on, of
# the weights in stage 3. On top lies what is there for a moment only: activations; in stage 2 the whole gradient
# before it is cut; in stage 3 the blocks that are whole at once.

# %% measure
block_bytes = 4 * (362 * 362 + 362)
above = max(held["for a moment"] for held, *_ in runs["stage 3"].results) / block_bytes
print(f"stage 3: {above:.1f} blocks above the shards at the peak")
size, share = 8 * block_bytes, 3 / 4  # of weights, or of gradients; (n−1)/n
sent = [
    max(sum(m.sent_bytes for m in seen.of_rank(rank)[slice(*calls)]) for rank, (_, calls, _) in enumerate(seen.results))
    for seen in runs.values()
]
print("your guess:", my_guess)
theory = [factor * share * size for factor in (2, 3, 2, 3)]
measured_and_theory(list(runs), sent, theory, "bytes that a rank sends in a step")

# %% [markdown]
# In units of (n−1)/n times the size: 2, 3, 2, 3. Stage 1 could do with 2, too, if it did not insist on whole
# averaged gradients. Stage 3 pays for its second gather, part of which hides where links work while cards compute.
#
# Now the calls of a step of stage 3: eight gathers for forward; then, for each block backwards, a gather and a
# reduce-scatter. (The timeline shows both steps.)

# %% measure
seen = runs["stage 3"]
first, last = seen.results[0][1]
kinds = [message.kind for message in seen.of_rank(0)[first:last]]
print(" ".join({"all_gather": "G", "reduce_scatter": "R"}.get(kind, kind) for kind in kinds))
seen.timeline()

# %% [markdown]
# ## 7 · One norm over all shards
#
# **A question from practice.** You clip gradients to a norm of 1. Each rank computes the norm of its shard, and
# scales it. Why does the run differ from the one on a single card?
#
# Because every rank divides by another norm, and each by one that is too small. Norms do not add up, but
# their squares do: ‖g‖² = ‖g₀‖² + ‖g₁‖² + …
#
# ### Exercise `clip_sharded`
#
# **Goal** `clip_grad_norm_sharded(shards, max_norm)` scales all gradients, in place, so that their norm over all
# ranks is at most `max_norm`. It returns the norm before.
#
# **Difficulty** ●○○ · **Time** 10 minutes · **Points** 1
#
# **Expected** on 2 ranks with shards `[3.]` and `[4.]` and a `max_norm` of 1: both return 5, and the shards
# become `[0.6]` and `[0.8]`.
#
# - A norm below `max_norm` changes nothing. A rank may have no shard at all; it still takes part.
# - One collective, of one number.
#
# <details><summary>If you see this error</summary>
#
# - *They are scaled up*: the factor is `min(1, max_norm / norm)`.
# - *add the squares*: all-reduce the sum of squares, then take the root.
#
# </details>

# %% solution clip_sharded
# exercise: clip_sharded
import torch
import torch.distributed as dist
from torch import Tensor


def clip_grad_norm_sharded(shards: list[Tensor], max_norm: float, group=None) -> float:
    """Scale gradient shards in place, so that their norm over all ranks is at most ``max_norm``.

    Returns:
        The norm before, the same on every rank.
    """
    ### BEGIN SOLUTION
    squares = torch.zeros((), dtype=torch.float64, device=shards[0].device if shards else None)
    for shard in shards:
        squares += shard.double().square().sum()
    dist.all_reduce(squares, group=group)
    norm = squares.sqrt().item()
    if norm > max_norm:
        for shard in shards:
            shard.mul_(max_norm / norm)
    return norm
    ### END SOLUTION

# %% tests clip_sharded
check("clip_sharded", clip_grad_norm_sharded)

# %% measure
def clipped_step():
    zero = Zero3(make_blocks(16, 3))
    batch = torch.randn(4, 16, generator=torch.Generator().manual_seed(dist.get_rank()))
    zero.backward(100 * zero(batch).square().mean())
    norm = clip_grad_norm_sharded(zero.gradient_shards(), 1.0)
    return norm, clip_grad_norm_sharded(zero.gradient_shards(), 1.0)


print("norms before and after clipping, by rank:", rankzero.run(clipped_step, ranks=4))

# %% [markdown]
# ## 8 · Another number of ranks
#
# **A question from practice.** One of four machines breaks down. The checkpoint has four shards, each with its
# part of the weights and of both moments. How do you go on with three?
#
# Put the shards together, drop the padding, and cut anew. The padding is the trap: 13 elements on 4 ranks have 3
# zeros at the end, on 2 ranks 1. Whoever cuts the padded tensor shifts what lies behind the first shard. With the
# same number of ranks nobody would notice.
#
# ### Exercise `reshard`
#
# **Goal** Shards for another world size.
#
# **Difficulty** ●○○ · **Time** 10 minutes · **Points** 2
#
# **Expected** for the shards `[1, 2]`, `[3, 4]`, `[5, 0]` of 5 elements and `world_size=2`: `[1, 2, 3]`,
# `[4, 5, 0]`.
#
# - `numel` counts elements without padding; what stands in the old padding must not matter.
# - Each new shard has ⌈numel / world_size⌉ elements. The old ones stay as they were. No rank is asked.
# - Weights and both moments go through the same function, and then training goes on as if nothing had been.
#
# %% solution reshard
# exercise: reshard
import torch
from torch import Tensor


def reshard(shards: list[Tensor], numel: int, world_size: int) -> list[Tensor]:
    """The same elements in shards for another world size.

    Args:
        shards: of all old ranks, in order, all of one length; the last ones end with padding.
        numel: elements without padding.
        world_size: number of new shards, ⌈numel / world_size⌉ elements each.
    """
    ### BEGIN SOLUTION
    whole = torch.cat(shards)[:numel]
    return list(flatten_pad([whole], world_size).view(world_size, -1))
    ### END SOLUTION

# %% tests reshard
check("reshard", reshard)

# %% [markdown]
# ## 9 · Against torch
#
# Torch has all of this: `ZeroRedundancyOptimizer` is stage 1, `fully_shard` (FSDP2) stage 3, and with
# `reshard_after_forward=False` nearly stage 2. The next cell trains the same model with both and with yours, step
# by step in turn. Will yours be slower, and by what factor?

# %% measure
def torchs_trainer(stage):
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer

    blocks = make_blocks()
    if stage == 1:
        optimizer = ZeroRedundancyOptimizer(blocks.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-3)
        return blocks, WholeGradients(blocks, optimizer)
    for module in (*blocks, blocks):
        fully_shard(module)
    optimizer = torch.optim.AdamW(blocks.parameters(), lr=1e-3)
    optimizer.backward = lambda loss: loss.backward()
    return blocks, optimizer


def seconds_of_both(stage, rounds=15):
    """Median seconds of a step, mine and torch's, in turn."""
    batch = torch.randn(4, 362, generator=torch.Generator().manual_seed(dist.get_rank()))
    taken = [[], []]
    both = [trainer(stage), torchs_trainer(stage)]
    for _ in range(rounds):
        for times, (forward, zero) in zip(taken, both):
            dist.barrier()
            started = time.perf_counter()
            zero.zero_grad()
            zero.backward(forward(batch).square().mean())
            zero.step()
            times.append(time.perf_counter() - started)
    return [sorted(times)[rounds // 2] for times in taken]


for stage, name in ((1, "ZeroRedundancyOptimizer"), (3, "fully_shard")):
    mine, theirs = map(max, zip(*rankzero.run(seconds_of_both, stage, ranks=4, record=False)))
    print(f"stage {stage}: yours {1e3 * mine:.1f} ms, {name} {1e3 * theirs:.1f} ms, ratio {mine / theirs:.2f}")

# %% [markdown]
# That does not beat torch: a million parameters on gloo and a few cores is a small world, where every extra call
# counts. `fully_shard` gathers ahead on streams of its own, mixes precisions, and composes with tensor
# parallelism. `benchmarks/zero.py` repeats this with 20 million parameters. On two cores, with 2 and 4 ranks, the
# reference took BENCH1 of the time of `ZeroRedundancyOptimizer` and BENCH3 of that of `fully_shard` (1 December
# 2026, torch 2.13).
#
# ### The same on GPUs
#
# - **One card**: nothing to shard. On Colab's single T4 your ranks stay on gloo.
# - **Kaggle's two T4s**: your classes are written for NCCL, too. A T4 has no bf16; with fp16 you need a GradScaler,
#   and its `unscale_` before you clip. Over PCIe 3 the extra traffic of stage 3 shows.
# - **Two or more rented cards**: copy `cloud/zero.py` of the repository and this notebook there, and run
#   `torchrun --standalone --nproc-per-node 2 zero.py --answers 06_zero.ipynb`. It prints bytes per rank and step
#   times of your classes and torch's.

# %% measure
def gib_on_card(stage):
    card = torch.device("cuda", dist.get_rank())
    with torch.device(card):
        forward, zero = trainer(stage)
        batch = torch.randn(4, 362)
        for _ in range(2):
            zero.zero_grad()
            zero.backward(forward(batch).square().mean())
            zero.step()
    return torch.cuda.max_memory_allocated(card) / 2**20


gpus = torch.cuda.device_count()
if gpus >= 2:
    for stage in range(4):
        print(f"stage {stage}: {max(rankzero.run(gib_on_card, stage, ranks=gpus)):.1f} MiB at most on a card")
else:
    print(f"GPUs here: {gpus}. With two or more, this cell prints the peak of each stage on them.")
    print("1.3 billion parameters in mixed precision on two T4s of 16 GB, without activations:")
    for stage in range(4):
        print(f"stage {stage}: {zero_bytes(1_300_000_000, 2, stage) / 1e9:.1f} GB per card")

# %% [markdown]
# ## What have you learnt?
#
# Click through the questions. Then type your letters in the cell below in place of `None`, and delete the
# line that raises `NotImplementedError`. Once all three are right, the check tells you why.

# %% quiz
quiz("quiz_06")

# %% solution quiz_06
# exercise: quiz_06
answers = {"q1": None, "q2": None, "q3": None}  # a letter each, such as "b"
### BEGIN SOLUTION
answers = {"q1": "b", "q2": "b", "q3": "d"}
### END SOLUTION

# %% tests quiz_06
check("quiz_06", answers)

# %% [markdown]
# ### In your own words
#
# A colleague wants to train all 7 billion parameters of a model with mixed-precision AdamW on 8 cards of 24 GB,
# joined by PCIe. Activations need 6 GB per card. Which stage, and why not the one below it? What does it cost in
# traffic, and what would you try if the links turn out to be too slow? Four or five sentences. (2 points, read
# by a person.)

# %% words words_06 2
# ### BEGIN SOLUTION
# Everything is 16 bytes per parameter, 112 GB, and in stage 3 an eighth of it, 14 GB, lies on each card: with
# activations 20 GB, which fits into 24. Stage 2 keeps the weights whole: 14 GB, and an eighth of the other 98 GB,
# 12.25 GB, make 26 GB, which does not fit even without activations. Stage 3 gathers the weights twice and
# reduce-scatters the gradients, so a rank sends 3(n−1)/n times 14 GB, half as much again as in stage 2. If the
# links are too slow I would accumulate gradients over larger batches, keep blocks gathered between forward and
# backward where there is room, or train fewer parameters (LoRA), so that little has to be sharded at all.
#
# Rubric: 1 point for stage 3 with the numbers of stages 3 and 2 (14 and 26 GB); 1 point for 3 instead of 2 units of
# traffic and one sensible way out.
# ### END SOLUTION

# %%
progress()

# %% [markdown]
# **Next: lesson 07**, in which `fully_shard` does all this for you, on real models, with checkpoints that survive
# another number of ranks.
#
# ### Sources
#
# - S. Rajbhandari, J. Rasley, O. Ruwase, Y. He, *ZeRO: Memory Optimizations Toward Training Trillion Parameter
#   Models*, SC20, November 2020, arXiv 1910.02054: the stages, figure 1 (7.5 billion parameters on 64 cards), and
#   the volume of communication in its section 7.
# - PyTorch 2.13, documentation of `fully_shard`, `ZeroRedundancyOptimizer` and `torch.autograd.graph`, December 2026.
# - Broadcasts against all-gather on gloo, 80 MB, 2 and 4 ranks on two cores, 1 December 2026: 32 and 62 ms against
#   73 and 135.
