"""Bisection takes a speed-up that only rises for granted.

says: rise and fall
"""

def gpus_for_deadline(single_gpu_hours, deadline_hours, efficiency, per_node, max_gpus=4096):
    low, high = 0, max_gpus // per_node
    while high - low > 1:
        middle = (low + high) // 2
        gpus = middle * per_node
        if single_gpu_hours / (gpus * efficiency(gpus)) <= deadline_hours:
            high = middle
        else:
            low = middle
    gpus = high * per_node
    if single_gpu_hours / (gpus * efficiency(gpus)) <= deadline_hours:
        return gpus
    raise ValueError("no number of cards is in time")
