"""Extrapolates from two samples, then checks around the guess."""

def largest_micro_batch(bytes_needed, gpu_bytes):
    one = bytes_needed(1)
    if one > gpu_bytes:
        return 0
    low, high = 1, None
    slope = max(1, bytes_needed(2) - one)
    guess = max(2, 1 + (gpu_bytes - one) // slope)
    while high is None or high - low > 1:
        if high is not None and not low < guess < high:
            guess = (low + high) // 2
        if bytes_needed(guess) <= gpu_bytes:
            low = guess
            guess = guess + 1 if high is None and guess == low else (low + (high or 2 * low)) // 2
            if high is None:
                guess = 2 * low if bytes_needed(low + 1) <= gpu_bytes else low + 1
        else:
            high = guess
            guess = high - 1 if high - low < 4 else (low + high) // 2
    return low
