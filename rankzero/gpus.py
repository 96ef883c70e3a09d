"""The cards that one trains on, with the memory that is really usable."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True)
class Gpu:
    """A card.

    Attributes:
        usable_mib: MiB that ``nvidia-smi`` shows as total; ECC on GDDR6 takes a sixteenth of what is printed on
            the box (T4, L4, A10, L40S).
        tflops: dense 16-bit tensor rate with fp32 accumulation; marketing often doubles it (sparsity) or
            quadruples it (sparsity, fp16 accumulation).
        gb_per_s: memory bandwidth, GB = 10**9 bytes.
        usd_per_hour: a price for one card, or None; prices live with their date in the rental tables.
    """

    name: str
    usable_mib: int
    tflops: float
    gb_per_s: float
    usd_per_hour: float | None = None

    @property
    def usable_bytes(self) -> int:
        return self.usable_mib * 2**20


#: MiB: as nvidia-smi shows it (modal-labs/modal-client#2797, 2025-01; SkyPilot catalogue, 2026-03).
#: Rates and bandwidths: stas00/ml-engineering (2026-08) and clocks × SMs from TechPowerUp (2025-12).
GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("t4", 15360, 65, 320),
        Gpu("v100-16gb", 16384, 125, 900),
        Gpu("rtx4060ti-16gb", 16380, 44.1, 288),
        Gpu("l4", 23034, 121, 300),
        Gpu("a10", 23028, 125, 600),
        Gpu("rtx3090", 24576, 71.2, 936),
        Gpu("rtx4090", 24564, 165.2, 1008),
        Gpu("rtx5090", 32607, 209.5, 1792),
        Gpu("a100-40gb", 40960, 312, 1555),
        Gpu("l40s", 46068, 362, 864),
        Gpu("rtx6000ada", 49140, 364, 960),
        Gpu("a100-80gb", 81920, 312, 2039),
        Gpu("h100", 81559, 989, 3350),
        Gpu("h200", 143771, 989, 4800),
        Gpu("b200", 183359, 2250, 8000),
    )
}


def find_gpu(name: str) -> Gpu:
    """The card of that name; case, spaces and dashes do not matter.

    Raises:
        ValueError: no card is called so; the message names the nearest.
    """
    plain = {key.replace("-", ""): gpu for key, gpu in GPUS.items()}
    wanted = "".join(character for character in name.lower() if character.isalnum())
    if wanted in plain:
        return plain[wanted]
    near = get_close_matches(wanted, plain, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(plain[key].name for key in near)}?" if near else f"known: {', '.join(GPUS)}"
    raise ValueError(f"gpu: {name!r} is not known; {hint}")
