# %% [markdown]
# # 01 · Where does the memory go?
#
# {{badges}}
#
# "Will it fit?" is the first question of everybody who trains. The usual answers are rules of thumb, and they
# fail after an hour of downloading, with *CUDA out of memory*. Here you take a training step apart, weigh every
# piece, and learn to add them up before you rent a card.
#
# **After this lesson you can**
#
# - measure the peak of a training step, to within 10 %, with 10 lines of your own;
# - count the parameters of six model families from their `config.json`, to the parameter;
# - say why the same 7 billion parameters take 112 GB in one recipe and 4 GB in another;
# - predict what a Llama keeps for backward within 3 %, with and without checkpointing;
# - name what fills the card when the vocabulary grows: 14 bytes per logit;
# - find the largest micro-batch with a dozen tries instead of thousands;
# - read a table such as "QLoRA 7B: 12–16 GB" and say which part of it is need and which is habit.
#
# **You need** lesson 00, and `loss.backward()`. **Time** about 90 minutes. **Points** 20 for the exercises, 3
# for the quiz, 2 for an answer in your own words.
#
# Units: 1 GB is 10⁹ bytes, 1 GiB is 2³⁰, 7 % more. Functions here take and return plain bytes.

# %% setup

# %%
import torch
import torch.nn.functional as F

import rankzero
from rankzero.draw import bytes_by_part
from rankzero.llama import Block, Llama
from rankzero.vram import Run, calculator, estimate, load_model

MIB, GIB = 2**20, 2**30
llama_7b = load_model("llama-2-7b").config

# %% [markdown]
# ## 1 · The peak lies in between
#
# **A question from practice.** A training script died of memory. The programmer prints the memory after each
# step: 60 % of the card. How can that be?
#
# What counts is the **peak**: the most bytes that were alive at any moment. `rankzero.live_bytes()` tells how
# many bytes of tensors are alive now. Several tensors can stand on one **storage**; a view costs nothing, and
# a storage goes when the last tensor on it goes.

# %%
before = rankzero.live_bytes()
x = torch.ones(1024, 1024)  # float32: 4 bytes each
y = x.t()[:10]  # a view: the same storage
print((rankzero.live_bytes() - before) / MIB, "MiB with x and its view")
del x
print((rankzero.live_bytes() - before) / MIB, "MiB without the name x: y still stands on that storage")
del y
print((rankzero.live_bytes() - before) / MIB, "MiB without y")

# %% [markdown]
# To see what happens *inside* a step, one has to look after every operator. PyTorch sends each of them
# through a dispatcher, backward included, and a `TorchDispatchMode` stands at its door:

# %%
from torch.utils._python_dispatch import TorchDispatchMode


class Names(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        print(func, end="  ")
        return out


with Names():
    weight = torch.ones(3, requires_grad=True)
    weight.sin().sum().backward()

# %% [markdown]
# Now a real step, small enough for a laptop: a Llama with 5 million parameters in bfloat16 (`rankzero.llama`,
# 130 lines that keep the same tensors as transformers' own), forward, loss, backward, and AdamW in its *foreach*
# form, the default on GPUs.

# %%
small = {"model_type": "llama", "vocab_size": 4000, "hidden_size": 256, "intermediate_size": 688}
small |= {"num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4, "tie_word_embeddings": False}
tiny = small | {"num_hidden_layers": 2}


def adamw(model):
    return torch.optim.AdamW(model.parameters(), foreach=True)


def training_step(model, optimizer=None, micro_batch=2, seq_len=128):
    """A function that does one step on random tokens; without an optimizer, forward and backward only."""
    ids = torch.randint(model.lm_head.out_features, (micro_batch, seq_len + 1))

    def step():
        logits = model(ids[:, :-1])
        F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten()).backward()
        if optimizer:
            optimizer.step()

    return step

# %% [markdown]
# **Predict.** Its weights take 9.4 MiB. How many times that is the peak of its first training step?

# %% predict
my_guess = None  # times the weights

# %% [markdown]
# ### Exercise `measured_peak`
#
# **Goal** `measured_peak(step)` calls `step()` once and returns the most bytes of tensors that were alive at
# once, beyond those that were alive before.
#
# **Difficulty** ●●○ · **Time** 15 minutes · **Points** 3
#
# **Expected** for a step that makes 4 MiB, then 12 MiB, drops both, and makes 1 MiB: 16 MiB, 16,777,216.
#
# - Temporaries count: what lives only between two operators of one expression, or only during backward.
# - What lived before does not, and what autograd alone holds does.
# - Within 10 %. On a machine with a GPU, also for steps on the GPU; `live_bytes()` counts both.
#
# **Free to choose** how you look.
#
# <details><summary>Hint 1</summary>
#
# A mode like `Names` can keep the largest value of `rankzero.live_bytes()` instead of printing. Look after
# the operator, while its result is still in your hands.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Give the class an attribute `peak`, and enter it with `with Watcher() as watcher: step()`.
#
# </details>
# <details><summary>If you see this error</summary>
#
# - *That is what is left when the step is over*: you looked at the end only.
# - *What lived before the step is in it*: take `live_bytes()` before the step, and subtract.
# - *`step` was called 2 times*: a warm-up run changes what is measured. AdamW makes its states in the first.
#
# </details>

# %% solution measured_peak
# exercise: measured_peak
from collections.abc import Callable

from torch.utils._python_dispatch import TorchDispatchMode

import rankzero


def measured_peak(step: Callable[[], None]) -> int:
    """The most bytes of tensors alive at once during ``step()``, beyond those that were alive before.

    Args:
        step: called once.
    """
    ### BEGIN SOLUTION
    before = rankzero.live_bytes()

    class Watcher(TorchDispatchMode):
        peak = before

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            self.peak = max(self.peak, rankzero.live_bytes())
            return out

    with Watcher() as watcher:
        step()
    return watcher.peak - before
    ### END SOLUTION

# %% tests measured_peak
check("measured_peak", measured_peak)

# %% [markdown]
# `rankzero.watch_step` does the same and notes what each byte is for. Here is your step:

# %% measure
model = Llama(small).bfloat16()
weights = 2 * sum(p.numel() for p in model.parameters())
peak = measured_peak(training_step(model, adamw(model)))
print(f"weights {weights / MIB:.1f} MiB, peak beyond them {peak / MIB:.1f} MiB")
print(f"all together {(weights + peak) / weights:.1f} × the weights     your guess: {my_guess}")

model = Llama(small).bfloat16()
optimizer = adamw(model)
seen = rankzero.watch_step(training_step(model, optimizer), model, optimizer)
seen.stack()

# %% [markdown]
# Read it from left to right. **Weights** lie there all the time. Forward piles up **activations**, and
# backward takes them down while it builds up **gradients**. The thin peak between the two is the loss. In the
# first optimizer step the **states** appear, and stay. So a step has several candidates for the peak (loss,
# backward, optimizer), and *the peak is the largest of them, never their sum*. Which one wins changes with
# the model and the batch; with longer sequences it is the loss.
#
# ## 2 · Weights: count them
#
# **A question from practice.** "Llama 2 7B": 7.0 billion, or 6.7? At 16 bytes each, 0.3 billion are 5 GB.
#
# All parameters follow from a few numbers of `config.json`. A model has an **embedding** (vocabulary ×
# hidden), blocks, one last **norm** (hidden), and a **head** (vocabulary × hidden), which some models *tie*
# to the embedding: one matrix, used twice. Each block of a Llama holds
#
# | part | shape |
# |---|---|
# | `q_proj` | (heads · head_dim) × hidden |
# | `k_proj`, `v_proj` | (key-value heads · head_dim) × hidden, each |
# | `o_proj` | hidden × (heads · head_dim) |
# | `gate_proj`, `up_proj` | intermediate × hidden, each |
# | `down_proj` | hidden × intermediate |
# | two norms | hidden, each |
#
# With *grouped queries* several query heads share one key-value head. The other families differ in little:
#
# | `model_type` | what is different |
# |---|---|
# | `llama` | where `attention_bias` is true: biases of q, k, v and o, each as long as its output |
# | `mistral` | no biases, ever |
# | `qwen2` | biases of q, k and v, which its config does not mention; none of o |
# | `qwen3` | as Llama, and two norms more per block, of queries and of keys: `head_dim` weights each |
# | `gemma` | as Llama |
# | `gemma2` | as Llama, with four norms per block instead of two |
#
# **Predict.** Llama 3.2 1B: 16 blocks, hidden 2048, a vocabulary of 128,256, tied. What share of its
# parameters is the embedding, in per cent?

# %% predict
my_guess = None  # per cent

# %% [markdown]
# ### Exercise `count_parameters`
#
# **Goal** The number of parameters of a decoder, from its configuration.
#
# **Difficulty** ●●○ · **Time** 20 minutes · **Points** 4
#
# **Expected** for a Llama with vocabulary 100, hidden 8, intermediate 20, 2 blocks, 2 heads, 2 key-value
# heads, untied, no biases: 3,112. For Llama 2 7B: 6,738,415,616.
#
# - Keys as in `config.json`: `model_type`, `vocab_size`, `hidden_size`, `intermediate_size`,
#   `num_hidden_layers`, `num_attention_heads`, `num_key_value_heads`, `tie_word_embeddings`.
# - `head_dim` may be missing; then it is hidden / heads. Where it is stated it wins, and heads · head_dim need
#   not be hidden. `attention_bias` may be missing, which means false.
# - To the parameter. Tied weights count once.
#
# <details><summary>Hint 1</summary>
#
# Work out q = heads · head_dim and k = key-value heads · head_dim first. Then attention, MLP and norms of one
# block, each as a number.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Total = embedding + blocks · (attention + MLP + norms) + last norm + head, where the head is 0 if tied.
#
# </details>
# <details><summary>If you see this error</summary>
#
# The check names what the difference is made of: *k_proj and v_proj are narrower* says to use the key-value heads.
#
# </details>

# %% solution count_parameters
# exercise: count_parameters
def count_parameters(config: dict) -> int:
    """The number of parameters of a decoder; tied ones once.

    Args:
        config: keys as in a ``config.json`` of llama, mistral, qwen2, qwen3, gemma or gemma2.
    """
    ### BEGIN SOLUTION
    family, hidden, vocab = config["model_type"], config["hidden_size"], config["vocab_size"]
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    q, k = heads * head_dim, config["num_key_value_heads"] * head_dim
    attention = hidden * (q + k + k) + q * hidden
    if family == "qwen2":
        attention += q + k + k
    elif config.get("attention_bias"):
        attention += q + k + k + hidden
    if family == "qwen3":
        attention += 2 * head_dim
    mlp = 3 * hidden * config["intermediate_size"]
    norms = hidden * (4 if family == "gemma2" else 2)
    tables = 1 if config["tie_word_embeddings"] else 2
    return tables * vocab * hidden + config["num_hidden_layers"] * (attention + mlp + norms) + hidden
    ### END SOLUTION

# %% tests count_parameters
check("count_parameters", count_parameters)

# %% [markdown]
# Do the real models agree? On the *meta device* tensors have shapes and no memory, so that even a 70B is built
# in seconds. The next cell asks transformers, if it is installed.

# %% measure
llama_1b = load_model("llama-3.2-1b").config
share = 100 * llama_1b["vocab_size"] * llama_1b["hidden_size"] / count_parameters(llama_1b)
print(f"embedding of Llama 3.2 1B: {share:.0f} %     your guess: {my_guess}")
try:
    import transformers
except ImportError:
    transformers = None
    print("transformers is not installed here; Colab has it, or: pip install 'rankzero[finetune]'")

for name in ("llama-2-7b", "llama-3.2-1b", "mistral-7b", "qwen2.5-0.5b", "qwen3-0.6b", "gemma-2b", "gemma-2-2b"):
    config = load_model(name).config
    line = f"{name:>14} {count_parameters(config):>14,}"
    if transformers:
        with torch.device("meta"):
            original = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config))
        original.tie_weights()
        line += f"   transformers {sum(p.numel() for p in original.parameters()):>14,}"
    print(line)

# %% [markdown]
# ## 3 · States: bytes per parameter
#
# **A question from practice.** The weights of a 7B model are 13.5 GB in bf16. Why do people rent two cards of
# 80 GB to train it?
#
# Training keeps three things of each trained parameter: the **weight**, its **gradient**, and the
# **optimizer's states**. AdamW has two: the running mean of the gradient, and of its square. With bf16
# weights, updates are often too small to change a bf16 number, so *mixed precision* keeps an fp32 **master
# copy** as well, which the optimizer updates. We count it with the optimizer, as ZeRO's paper does.
#
# | recipe | weights | gradients | optimizer |
# |---|---|---|---|
# | `fp32` | fp32 | fp32 | two moments in fp32 |
# | `bf16_mixed` | bf16 | bf16 | master copy and two moments in fp32 |
# | `bf16_pure` | bf16 | bf16 | two moments in bf16 |
# | `adam8bit` | bf16 | bf16 | two moments of 1 byte, each with one fp32 scale per block of 256 |
# | `lora` | frozen bf16, adapters fp32 | fp32, of the adapters | two fp32 moments of the adapters |
# | `qlora` | as `lora`, with most frozen weights in NF4 | as `lora` | as `lora` |
#
# A **frozen** weight has no gradient and no state. LoRA freezes the model and trains small adapters beside
# its layers; that is where its saving comes from. NF4 then stores a frozen weight in half a byte, plus one
# scale per block of 64. *Double quantization* puts that scale into 1 byte, plus one fp32 scale per 256 of
# them. Lesson 03 builds all of this.
#
# **Predict.** How many bits per weight is NF4 with double quantization, scales included? (4 would be without
# any scale; one fp32 scale per block gives 4.5.)

# %% predict
my_guess = None  # bits per weight

# %% [markdown]
# ### Exercise `state_bytes`
#
# **Goal** The bytes of weights, gradients and optimizer states in six recipes.
#
# **Difficulty** ●●○ · **Time** 15 minutes · **Points** 4
#
# **Expected** `state_bytes(1000, 1000, "bf16_mixed")` gives `{"weights": 2000, "gradients": 2000,
# "optimizer": 12000}`.
#
# - `parameters` counts all of them, adapters included; `trainable` of them are trained, in any recipe.
# - `quantized`, for `qlora`, is how many frozen weights are in NF4. The other frozen ones stay bf16. `None`
#   means all frozen ones.
# - Each of the three within 0.1 %, so rounding of blocks does not matter.
#
# <details><summary>Hint</summary>
#
# `frozen = parameters - trainable`. Then write one line per recipe, or a table of bytes per frozen weight,
# trained weight, gradient and state.
#
# </details>
# <details><summary>If you see this error</summary>
#
# - *The fp32 master copy is missing*: 4 + 4 + 4 bytes with the optimizer.
# - *without double quantization*: 1/64 byte for the scales, and 4/(64 · 256) for the scales' scales.
#
# </details>

# %% solution state_bytes
# exercise: state_bytes
def state_bytes(parameters: int, trainable: int, recipe: str, quantized: int | None = None) -> dict[str, int]:
    """Bytes of weights, gradients and optimizer states.

    Args:
        parameters: all, the trainable ones included.
        trainable: how many of them are trained.
        recipe: "fp32", "bf16_mixed", "bf16_pure", "adam8bit", "lora" or "qlora".
        quantized: how many frozen weights are in NF4, for "qlora"; None for all frozen ones.
    """
    ### BEGIN SOLUTION
    frozen = parameters - trainable
    adapters = recipe in ("lora", "qlora")
    trained_bytes = 4 if recipe == "fp32" or adapters else 2
    frozen_bytes = 4 if recipe == "fp32" else 2
    in_nf4 = 0
    if recipe == "qlora":
        in_nf4 = frozen if quantized is None else quantized
    states = {"fp32": 8, "bf16_mixed": 12, "bf16_pure": 4, "adam8bit": 2 * (1 + 4 / 256), "lora": 8, "qlora": 8}
    nf4 = 0.5 + 1 / 64 + 4 / (64 * 256)
    return {
        "weights": round(nf4 * in_nf4 + frozen_bytes * (frozen - in_nf4) + trained_bytes * trainable),
        "gradients": trained_bytes * trainable,
        "optimizer": round(states[recipe] * trainable),
    }
    ### END SOLUTION

# %% tests state_bytes
check("state_bytes", state_bytes)

# %% measure
print(f"NF4: {8 * state_bytes(10**9, 0, 'qlora')['weights'] / 10**9:.3f} bits     your guess: {my_guess}\n")
parameters = count_parameters(llama_7b)
for recipe in ("fp32", "bf16_mixed", "bf16_pure", "adam8bit"):
    parts = state_bytes(parameters, parameters, recipe)
    print(f"{recipe:>10}: {sum(parts.values()) / 1e9:6.1f} GB", {part: round(n / 1e9, 1) for part, n in parts.items()})
adapters = 39_976_960  # rank 16 on all linear layers of the blocks
in_blocks = 32 * (4 * 4096**2 + 3 * 4096 * 11008)  # what NF4 quantizes
for recipe, quantized in (("lora", None), ("qlora", in_blocks)):
    parts = state_bytes(parameters + adapters, adapters, recipe, quantized)
    print(f"{recipe:>10}: {sum(parts.values()) / 1e9:6.1f} GB", {part: round(n / 1e9, 1) for part, n in parts.items()})

print("\nand live, for two blocks of the small Llama after a step, against the formula:")
for dtype, recipe in ((torch.float32, "fp32"), (torch.bfloat16, "bf16_pure")):
    model = Llama(tiny).to(dtype)
    optimizer = adamw(model)
    live = rankzero.watch_step(training_step(model, optimizer), model, optimizer).samples[-1].bytes
    n = count_parameters(tiny)
    print(f"{recipe:>10}:", {part: f"{size / MIB:.2f} MiB" for part, size in live.items() if "act" not in part})
    print(f"{'formula':>10}:", {part: f"{size / MIB:.2f} MiB" for part, size in state_bytes(n, n, recipe).items()})

# %% [markdown]
# The row *other* is AdamW at work: it takes the square root of all second moments at once, a whole further copy.
# With `fused=True` it does without.
#
# ## 4 · Activations: what autograd keeps
#
# **A question from practice.** LoRA trains 0.6 % of the parameters. Why does a run with long sequences still
# run out of memory, long before the optimizer has anything to do?
#
# Backward needs values of forward. Autograd keeps them from the moment they are made until backward has used
# them. `rankzero.saved_tensors` lists them. First a tiny example:

# %%
w = torch.ones(1000, requires_grad=True)
rankzero.saved_tensors(lambda t: (t.exp() * 2).sin(), w)

# %% [markdown]
# `exp` keeps its result, `sin` its input, and the multiplication by 2 nothing. Each storage is listed once,
# and parameters are left out, since they are alive anyway. Now one block of a Llama, in bf16: hidden h = 256,
# queries q = 256, keys k = 64 wide, intermediate f = 688, 8 heads; 1 × 100 tokens.
#
# **Predict.** The block's input is 2h = 512 bytes per token. How many times that does the block keep?

# %% predict
my_guess = None  # times the input

# %%
shown = small | {"num_key_value_heads": 2}
block = Block(shown).bfloat16()
x = torch.randn(1, 100, 256, dtype=torch.bfloat16, requires_grad=True)
angles = (torch.ones(1, 1, 100, 32, dtype=torch.bfloat16), torch.zeros(1, 1, 100, 32, dtype=torch.bfloat16))
kept = rankzero.saved_tensors(block, x, angles)
kept

# %% [markdown]
# Take your time with this list; the next exercise is in it. Divide each row by 100 tokens, and name it: 1,024
# bytes are 4h (fp32!), 512 are 2h or 2q, 1,376 are 2f, 128 are 2k. Attention by SDPA keeps queries, keys, values,
# its output, and one fp32 number per head; nothing quadratic. All blocks share the cosines and sines.

# %% measure
print(f"{kept.total_bytes / 100:,.0f} bytes per token, {kept.total_bytes / x.nbytes:.1f} × the input", end="     ")
print("your guess:", my_guess)

# %% [markdown]
# **Checkpointing** throws all of this away and keeps only each block's *input*, 2h bytes per token. In
# backward it runs one block after the other once more, so that at any time *one* block's tensors are there
# besides. It costs a second forward, a third more compute.
#
# ### Exercise `activation_bytes`
#
# **Goal** What autograd keeps of a bf16 Llama's forward, from token ids to logits.
#
# **Difficulty** ●●● · **Time** 25 minutes · **Points** 4
#
# **Expected** for the block above, times 5, with 3 × 64 tokens: the check shows it.
#
# - Count storages: all blocks, the last norm, which keeps tensors as the others do, and the input of the head.
#   Leave out parameters, logits and loss.
# - With `checkpointing`: the inputs of all blocks, plus everything that one block keeps.
# - Keys of `config` as before. Within 3 %, for hidden sizes of 256 and more; small things (token ids, cosines)
#   may be left out.
#
# <details><summary>Hint 1</summary>
#
# Per token, one norm and the linear layers behind it keep: fp32 copy 4h, one number 4, bf16 result 2h, and
# its product with the norm's weight 2h, which is the input of q, k and v, or of gate and up.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Attention keeps 2q + 2k + 2k + 2q + 4 · heads: the output is also the input of `o_proj`. The MLP keeps four
# tensors of 2f: gate, silu(gate), up, and their product, the input of `down_proj`.
#
# </details>
# <details><summary>If you see this error</summary>
#
# - *behind the last block*: add one norm and the head's input, 8h + 4 per token.
# - *keeps x so, 4 bytes each*: the norm's fp32 copy.
#
# </details>

# %% solution activation_bytes
# exercise: activation_bytes
def activation_bytes(config: dict, micro_batch: int, seq_len: int, checkpointing: bool) -> int:
    """Bytes that autograd keeps of a Llama's forward in bf16, with SDPA.

    Args:
        config: keys as in a Llama's ``config.json``.
        micro_batch, seq_len: sequences, and tokens in each.
        checkpointing: whether only the blocks' inputs are kept, and one block is run again at a time.
    """
    ### BEGIN SOLUTION
    h, f, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    head_dim = config.get("head_dim") or h // heads
    q, k = heads * head_dim, config["num_key_value_heads"] * head_dim
    norm = 4 * h + 4 + 2 * h + 2 * h  # fp32 copy, its scale, bf16 result, input of the linear layers
    attention = 2 * q + 2 * k + 2 * k + 2 * q + 4 * heads
    mlp = 4 * 2 * f
    block = 2 * norm + attention + mlp
    layers, tokens = config["num_hidden_layers"], micro_batch * seq_len
    if checkpointing:
        return tokens * (layers * 2 * h + block)
    return tokens * (layers * block + norm)
    ### END SOLUTION

# %% tests activation_bytes
check("activation_bytes", activation_bytes)

# %% measure
ids = torch.randint(4000, (2, 128))
predicted = activation_bytes(small, 2, 128, False)
live = rankzero.saved_tensors(Llama(small).bfloat16(), ids).total_bytes
print(f"predicted {predicted:,}, kept {live:,} bytes: {100 * (predicted / live - 1):+.1f} %\n")
deep = small | {"num_hidden_layers": 6, "vocab_size": 400}
for checkpointing in (False, True):
    model = Llama(deep, checkpointing).bfloat16()
    seen = rankzero.watch_step(training_step(model, micro_batch=4), model)
    most = max(sample.bytes["activations"] for sample in seen.samples)
    said = activation_bytes(deep, 4, 128, checkpointing)
    print(f"checkpointing {checkpointing!s:>5}: activations up to {most / MIB:.1f} MiB, predicted {said / MIB:.1f}")
seen.stack()

# %% [markdown]
# The picture is the run with checkpointing. In forward the activations rise slowly, input by input, and in
# backward they stand in six narrow columns: one block at a time. (What is above the prediction are the
# log-probabilities that the loss keeps.) Llama 2 7B, 2,048 tokens, by the same formula:

# %%
for checkpointing in (False, True):
    print(f"checkpointing {checkpointing!s:>5}: {activation_bytes(llama_7b, 1, 2048, checkpointing) / GIB:.2f} GiB")

# %% [markdown]
# And LoRA? Frozen linear layers no longer keep their inputs, which only a weight's gradient needs. But the
# gradient still flows *through* everything to reach the adapters of the first block: norms, attention and the
# MLP's products keep what they kept. You save a quarter of the activations or so, not 99 %.
#
# ## 5 · Logits: the tensor behind the last block
#
# **A question from practice.** Llama 2 7B trains on a card. Llama 3 8B, hardly larger, does not, with the same
# settings. What has changed most?
#
# The vocabulary: 32,000 became 128,256. Each token gets a **logit** for every word. The model computes them in
# bf16; transformers' loss turns them into fp32 for the softmax:
#
# 1. the bf16 logits: 2 bytes. They stay as long as the loop holds the model's output, as most loops do;
# 2. an fp32 copy, from which log-softmax makes log-probabilities; the copy goes, these stay for backward;
# 3. in backward, the negative log-likelihood sends back a gradient of the same shape, in fp32;
# 4. log-softmax turns that into the gradient of the logits, in fp32, while all of the above is still there.
#
# **Predict.** How many GiB is that for 8,192 tokens of Llama 3?

# %% predict
my_guess = None  # GiB

# %% [markdown]
# ### Exercise `logits_bytes`
#
# **Goal** The bytes of all tensors of the logits' shape that are alive at the peak of the loss.
#
# **Difficulty** ●○○ · **Time** 5 minutes · **Points** 2
#
# **Expected** for one token and a vocabulary of 1,000: 14,000.
#
# <details><summary>Hint</summary>
#
# Which of these tensors are alive at moment 4? Only one is gone.
#
# </details>

# %% solution logits_bytes
# exercise: logits_bytes
def logits_bytes(vocab_size: int, micro_batch: int, seq_len: int) -> int:
    """Bytes of logits, log-probabilities and gradients at the peak of an unfused cross-entropy over bf16 logits."""
    ### BEGIN SOLUTION
    bf16_logits, log_probabilities, gradient_of_nll, gradient_of_logits = 2, 4, 4, 4
    per_logit = bf16_logits + log_probabilities + gradient_of_nll + gradient_of_logits
    return per_logit * vocab_size * micro_batch * seq_len
    ### END SOLUTION

# %% tests logits_bytes
check("logits_bytes", logits_bytes)

# %% measure
def loss_alone():
    logits = torch.randn(256, 8000).bfloat16().requires_grad_()
    F.cross_entropy(logits.float(), torch.zeros(256, dtype=torch.long)).backward()


peak = measured_peak(loss_alone)
print(f"measured {peak / (256 * 8000):.2f} bytes per logit, predicted {logits_bytes(8000, 1, 256) / (256 * 8000):.2f}")
print(f"8,192 tokens of Llama 3: {logits_bytes(128256, 1, 8192) / GIB:.1f} GiB     your guess: {my_guess}")

# %% [markdown]
# Checkpointing the blocks does not touch this: the logits are behind the last block. What helps a little is to let
# go of the output before backward, as transformers' Trainer does (12 bytes); what helps is a loss that never holds
# all logits: fused into the head (Liger, cut cross-entropy) or cut into chunks of tokens.
#
# ## 6 · The largest micro-batch
#
# **A question from practice.** A larger micro-batch uses the card better. People find it by starting runs until
# one dies. How many runs does that take?
#
# ### Exercise `largest_micro_batch`
#
# **Goal** The largest micro-batch whose need is at most `gpu_bytes`; 0 if none fits.
#
# **Difficulty** ●●○ · **Time** 15 minutes · **Points** 3
#
# **Expected** for `lambda n: 6 + n` and 24: 18.
#
# - `bytes_needed(n)` grows with n, but not always evenly: in steps, or by the square.
# - Each call is costly, a whole training step perhaps. For an answer in the thousands 25 calls are enough; more
#   than 50 are too many.
# - Just full fits.
#
# <details><summary>Hint 1</summary>
#
# Double until it no longer fits. Then the answer lies between the last that fitted and the first that did not;
# halve that interval until the two are neighbours.
#
# </details>
# <details><summary>If you see this error</summary>
#
# - *That overflows the card*: return the end of the interval that fits.
# - *compare with <=*: a need that is just the size of the card still fits.
#
# </details>

# %% solution largest_micro_batch
# exercise: largest_micro_batch
from collections.abc import Callable


def largest_micro_batch(bytes_needed: Callable[[int], int], gpu_bytes: int) -> int:
    """The largest micro-batch that fits; 0 if none does.

    Args:
        bytes_needed: micro-batch to bytes, never falling; each call is costly.
        gpu_bytes: what there is.
    """
    ### BEGIN SOLUTION
    fits, too_many = 0, 1
    while bytes_needed(too_many) <= gpu_bytes:
        fits, too_many = too_many, 2 * too_many
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if bytes_needed(middle) <= gpu_bytes:
            fits = middle
        else:
            too_many = middle
    return fits
    ### END SOLUTION

# %% tests largest_micro_batch
check("largest_micro_batch", largest_micro_batch)

# %% [markdown]
# Now with real steps: your own `measured_peak` as `bytes_needed`, two blocks, and a "card" of 64 MiB. And once
# more with your formulas, which need no run at all.
#
# **Predict.** One sequence of 128 tokens needs 33 MiB, most of it states. How many sequences fit into 64 MiB?

# %% predict
my_guess = None  # sequences

# %% measure
def by_measuring(micro_batch):
    model = Llama(tiny).bfloat16()
    step = training_step(model, adamw(model), micro_batch)
    needed = 2 * count + measured_peak(step)
    print(f"  {micro_batch} sequences: {needed / MIB:.0f} MiB")
    return needed


def by_formula(micro_batch):
    kept = state_bytes(count, count, "bf16_pure")
    at_loss = activation_bytes(tiny, micro_batch, 128, False) + logits_bytes(4000, micro_batch, 128)
    at_step = kept["gradients"] + kept["optimizer"] + 2 * count  # with the copy for the square roots
    return kept["weights"] + max(at_loss, at_step)  # in the first step there are no states yet at the loss


count = count_parameters(tiny)
by_runs, by_sums = (largest_micro_batch(need, 64 * MIB) for need in (by_measuring, by_formula))
print(f"by measuring {by_runs}, by your formulas {by_sums}     your guess: {my_guess}")

# %% [markdown]
# Your formulas need no run, and are off by a sequence at most. From the second step on the states are there at
# the loss as well, so a careful planner adds them.
#
# ## 7 · Case: a table from the internet
#
# In many guides you meet a table like this one:
#
# | fine-tuning | "needs" |
# |---|---|
# | QLoRA, 7B | 12–16 GB |
# | LoRA, 7B | 20–24 GB |
# | QLoRA, 13–14B | 18–24 GB |
# | full, 7B | more than 100 GB |
#
# Micro-batch, length, optimizer: not a word. `rankzero.vram.estimate` does what you did, with all moments of a
# step, the allocator and the CUDA context. Which of the four is a *need*, which merely the *size of a card*, and
# which holds for one recipe only?
#
# **Predict.** How many GiB does QLoRA on Llama 2 7B need, with 1 × 2,048 tokens, checkpointing, and rank 16 on
# all linear layers?

# %% predict
my_guess = None  # GiB

# %% measure
adapters = {"precision": "bf16_pure", "lora_rank": 16, "lora_targets": ("all-linear",)}
rows = {
    "QLoRA 7B": ("llama-2-7b", {"method": "qlora", **adapters}),
    "LoRA 7B": ("llama-2-7b", {"method": "lora", **adapters}),
    "QLoRA 13B": ("llama-2-13b", {"method": "qlora", **adapters}),
    "full 7B, mixed AdamW": ("llama-2-7b", {"precision": "bf16_mixed"}),
    "full 7B, pure bf16": ("llama-2-7b", {"precision": "bf16_pure"}),
    "full 7B, pure, 8-bit": ("llama-2-7b", {"precision": "bf16_pure", "optimizer": "adamw8bit"}),
}
shapes = ((1, 512), (1, 2048), (4, 2048))
print(f"{'GiB on the card':>22}", *(f"{batch} × {length:<6}" for batch, length in shapes))
for name, (model_name, settings) in rows.items():
    needs = []
    for batch, length in shapes:
        run = Run(**settings, checkpointing="full", micro_batch=batch, seq_len=length)
        needs.append(estimate(model_name, run).device_bytes / GIB)
    print(f"{name:>22}", *(f"{need:<10.1f}" for need in needs))
print("your guess for the first row, 1 × 2048:", my_guess)

parts = {
    name: estimate(model_name, Run(**settings, checkpointing="full", seq_len=2048)).breakdown
    for name, (model_name, settings) in rows.items()
}
bytes_by_part(parts, {"T4": 15360 * MIB, "RTX 4090": 24564 * MIB, "A100 80 GB": 81920 * MIB})

# %% [markdown]
# - **QLoRA 7B, 12–16 GB**: a card size. The run needs 5 to 7 GiB with one sequence, 12 GiB with 4 × 2,048. The
#   cards that people have are 12 and 16 GB.
# - **LoRA 7B, 20–24 GB**: again a card. 14 to 16 GiB with one sequence, so a 16 GB card *just* fails or just
#   fits: a T4 has 15.0 GiB, no more. The next size is 24.
# - **QLoRA 13B, 18–24 GB**: conservative; 9 to 17 GiB.
# - **Full 7B, more than 100 GB**: a real need, but of *mixed-precision AdamW*: 16 bytes per parameter, and the
#   temporaries of its step. Pure bf16 needs half or less, 8-bit states 40 GiB. torchtune trains an 8B fully in 18.9
#   GiB: paged 8-bit AdamW, and the optimizer's step inside backward, so that hardly a gradient ever lives. Whoever
#   says "full" has to name the recipe.
#
# ### What others estimate
#
# `accelerate estimate-memory` is the estimator that most people meet first. It multiplies the size of the
# weights. The cell asks accelerate's own functions for the same model, if it is installed.

# %% measure
try:
    from accelerate.commands.estimate import estimate_training_usage
except ImportError:
    estimate_training_usage = None
    print("accelerate is not installed here; Colab has it, or: pip install 'rankzero[finetune]'")
if estimate_training_usage:
    for precision in ("float32", "bfloat16"):
        usage = estimate_training_usage(4 * load_model("llama-2-7b").parameters, precision)
        print(f"accelerate, {precision}:", {part: f"{size / GIB:.0f} GiB" for part, size in usage.items() if size > 0})
        print(f"{'':>12}its largest figure: {max(usage.values()) / GIB:.0f} GiB")
for length in (512, 8192):
    run = Run(precision="autocast", checkpointing="full", micro_batch=4, seq_len=length)
    needed = estimate("llama-2-7b", run).device_bytes / GIB
    print(f"ours, fp32 weights and bf16 compute, 4 × {length}: {needed:.0f} GiB")

# %% [markdown]
# It knows neither activations nor logits nor LoRA, and no length; nor does it name the moment. For full fine-tuning
# in fp32, where states rule, it leaves out the temporaries of the step. On the command line, `rankzero vram MODEL
# …` is ours, and `--fit` finds the largest micro-batch; `benchmarks/vram.py` says how far off each estimator is on
# published measurements.
#
# Try it: which single change brings full, pure bf16 fine-tuning of a 7B onto a card of 48 GB?

# %%
calculator()

# %% [markdown]
# ## 8 · The same on a GPU
#
# The tensors are the same; three things come on top.
#
# - **The caching allocator.** PyTorch takes memory from the driver in segments of 2 or 20 MiB and more, and keeps
#   what is freed. `torch.cuda.memory_allocated()` counts live tensors, `memory_reserved()` the segments. Where
#   sizes change, holes remain; `expandable_segments` closes most of them.
# - **The CUDA context**: kernels and the driver's own, outside of both counters. Only `nvidia-smi` shows it.
# - **A card is smaller than its name.** ECC takes a sixteenth on a T4, L4, A10 and L40S.
#
# On a T4 there is no bf16: weights and activations are fp16, of the same size, with a `GradScaler` and fp32
# masters. It has no flash attention either: SDPA then uses another kernel, and where that is the plain one, it
# keeps the seq × seq scores.

# %% measure
if torch.cuda.is_available():
    card = torch.cuda.get_device_properties(0)
    dtype = torch.bfloat16 if card.major >= 8 else torch.float16
    model = Llama(small).to("cuda", dtype)
    ids = torch.randint(4000, (8, 513), device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()

    def forward_backward():
        logits = model(ids[:, :-1])
        F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten()).backward()

    looked = measured_peak(forward_backward)
    peak = torch.cuda.max_memory_allocated() - before
    free, total = torch.cuda.mem_get_info()
    print(f"{card.name}, {dtype}: allocated up to {peak / MIB:.1f} MiB; your measured_peak says {looked / MIB:.1f}")
    print(f"predicted: activations {activation_bytes(small, 8, 512, False) / MIB:.1f} MiB", end=", ")
    print(f"logits {logits_bytes(4000, 8, 512) / MIB:.1f} MiB")
    print(f"reserved {torch.cuda.memory_reserved() / MIB:.0f} MiB, used on the card {(total - free) / MIB:.0f} MiB")
else:
    print("No GPU here. With one, this cell compares the allocator's peak with your formulas, and with the card's.")
from rankzero.gpus import GPUS

print({name: round(gpu.usable_mib / 1024, 1) for name, gpu in GPUS.items()}, "GiB")

# %% [markdown]
# On several cards, DDP keeps all of this on every card, and the gradients once more in buckets. ZeRO and FSDP cut
# weights, gradients and states into pieces; activations and logits stay whole. Lessons 05 to 07 build them.
#
# ## What have you learnt?
#
# Click through the questions. Then type your letters in the cell below in place of `None`, and delete the
# line that raises `NotImplementedError`. Once all three are right, the check tells you why.

# %% quiz
quiz("quiz_01")

# %% solution quiz_01
# exercise: quiz_01
answers = {"q1": None, "q2": None, "q3": None}  # a letter each, such as "b"
### BEGIN SOLUTION
answers = {"q1": "d", "q2": "a", "q3": "b"}
### END SOLUTION

# %% tests quiz_01
check("quiz_01", answers)

# %% [markdown]
# ### In your own words
#
# A friend fine-tunes an 8B model with LoRA on a card of 24 GB. With 1,024 tokens it runs, with 8,192 it does
# not. He wants to halve the rank of LoRA, from 16 to 8. Does that help? What would you do instead, and in which
# order? Four or five sentences. (2 points, read by a person.)

# %% words words_01 2
# ### BEGIN SOLUTION
# The rank hardly matters: at rank 16 the adapters with gradients and states are 0.6 GB or so, halving them gives
# back 0.3 GB. What grew eightfold with the length are activations and logits: without checkpointing a block
# keeps about 200 KB per token, 32 blocks 6 MB per token, and the logits of 128,256 words cost 14 bytes each, 1.8
# MB per token, so 15 GB for 8,192 tokens. First I would switch on checkpointing, which leaves 0.26 MB per token
# and one block. That does not touch the logits, so then a fused or chunked loss. If that is still too much, NF4
# for the frozen weights (QLoRA) frees another 10 GB.
#
# Rubric: 1 point for seeing that rank, and so adapters and states, are not what grows, but activations and
# logits with the tokens; 1 point for a sensible order with reasons (checkpointing for the blocks, a fused or
# chunked loss for the logits, then QLoRA or shorter sequences).
# ### END SOLUTION

# %%
progress()

# %% [markdown]
# **Next: lesson 02**, in which you turn bytes and operations into cards, hours and money.
#
# ### Sources
#
# - Sixteen bytes per parameter, and the master copy among the states: Rajbhandari and others, *ZeRO*, arXiv
#   1910.02054, October 2019.
# - NF4 and double quantization: Dettmers and others, *QLoRA*, arXiv 2305.14314, May 2023. 8-bit states in
#   blocks: Dettmers and others, arXiv 2110.02861, October 2021; blocks of 256 as in bitsandbytes today.
# - Loss code: transformers 5.24, `ForCausalLMLoss`, read in December 2026.
# - 18.9 GiB for a full 8B: torchtune 0.6.1, README. Other figures of the table, checked against measured runs:
#   `benchmarks/vram.py`.
# - Memory of cards as `nvidia-smi` shows it: modal-labs/modal-client pull request 2797, 23 January 2025;
#   SkyPilot's catalogue, March 2026.
# - accelerate 1.15: `commands/estimate.py`.
