# SPDX-License-Identifier: Apache-2.0
"""peer.py CHECKPOINT COPY_GB_PER_S PRODUCT_TFLOP_PER_S: the same model by PyTorch and transformers.

As tests/gpu/model.c measures berth: the start, decode at a context of about 592 tokens, prefill of
8,191 tokens; the same shares of the same ceilings. Decode is compiled and recorded, with a static
cache, as `generate` does it; prefill is compiled. Prints why it measures nothing where one of the
two is not installed, or has no device.
"""
import json
import os
import statistics
import sys
import time

CONTEXT = 592
STEPS = 64
PROMPT = 8191
REPEATS = 5

try:
    import torch
    import transformers
except ImportError as missing:
    print(f"PyTorch and transformers: left out, {missing}")
    sys.exit(0)
if not torch.cuda.is_available():
    print("PyTorch and transformers: left out, PyTorch has no device")
    sys.exit(0)


class Clock(transformers.StoppingCriteria):
    """When each step's tokens were there."""

    def __init__(self):
        self.times = []

    def __call__(self, input_ids, scores, **others):
        torch.cuda.synchronize()
        self.times.append(time.perf_counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)


class Shape:
    """What a step reads and what it multiplies, of Llama's structure in 16 bits."""

    def __init__(self, folder):
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        hidden = config["hidden_size"]
        self.layers = config["num_hidden_layers"]
        heads = config["num_attention_heads"]
        width = config.get("head_dim") or hidden // heads
        self.keys = config["num_key_value_heads"] * width
        attention = hidden * (2 * heads * width + 2 * self.keys)
        self.linear = self.layers * (attention + 3 * hidden * config["intermediate_size"])
        self.head = hidden * config["vocab_size"]
        self.vocab = config["vocab_size"]

    def step_bytes(self, requests):
        cached = 2 * self.keys * self.layers * CONTEXT * requests
        return 2 * (self.linear + self.head + cached)

    def prompt_flops(self):
        return 2 * PROMPT * self.linear + 2 * self.head


def generate(model, ids, count):
    clock = Clock()
    model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=count,
        min_new_tokens=count,
        do_sample=False,
        cache_implementation="static",
        stopping_criteria=transformers.StoppingCriteriaList([clock]),
    )
    return clock.times


def time_decode(model, shape, requests, copy_rate):
    ids = torch.randint(0, shape.vocab, (requests, CONTEXT - STEPS // 2), device="cuda")
    generate(model, ids, STEPS)  # compiles
    times = generate(model, ids, STEPS)
    steps = [after - before for before, after in zip(times[8:], times[9:])]
    seconds = statistics.median(steps)
    rate = shape.step_bytes(requests) / seconds
    print(
        f"PyTorch, decode, {requests:3} requests, context {CONTEXT} {seconds * 1e3:10.3f} ms a step"
        f" {requests / seconds:10.1f} tokens/s {rate / 1e9:8.1f} GB/s"
        f" {100 * rate / copy_rate:5.1f} % of the copy",
        flush=True,
    )


def time_prefill(model, shape, product_rate):
    step = torch.compile(model)
    times = []
    for _ in range(REPEATS + 2):
        ids = torch.randint(0, shape.vocab, (1, PROMPT), device="cuda")
        torch.cuda.synchronize()
        begin = time.perf_counter()
        step(ids, use_cache=True, logits_to_keep=1)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    seconds = statistics.median(times[2:])
    rate = shape.prompt_flops() / seconds
    print(
        f"PyTorch, prefill, 1 request of {PROMPT} tokens {seconds * 1e3:10.2f} ms"
        f" {PROMPT / seconds:10.1f} tokens/s {rate / 1e12:7.1f} TFLOP/s"
        f" {100 * rate / product_rate:5.1f} % of the product",
        flush=True,
    )


def main():
    folder, copy_rate, product_rate = sys.argv[1], float(sys.argv[2]) * 1e9, float(sys.argv[3]) * 1e12
    transformers.logging.set_verbosity_error()
    shape = Shape(folder)
    begin = time.perf_counter()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, device_map="cuda"
    ).eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    model.generate(torch.zeros((1, 16), dtype=torch.long, device="cuda"), max_new_tokens=1)
    torch.cuda.synchronize()
    print(
        f"PyTorch {torch.__version__}, transformers {transformers.__version__}: the first token"
        f" out after {time.perf_counter() - begin:.2f} s",
        flush=True,
    )
    with torch.inference_mode():
        time_decode(model, shape, 1, copy_rate)
        time_decode(model, shape, 64, copy_rate)
        time_prefill(model, shape, product_rate)


main()
