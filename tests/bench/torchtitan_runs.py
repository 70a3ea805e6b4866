"""torchtitan's published runs, asked of `pipewright estimate`: torchtitan_runs.py PIPEWRIGHT. Nothing is fitted to them.
pytorch/torchtitan: docs/performance.md of 2024 (64 A100, without torch.compile), benchmarks/llama3-8b_h200_202506 (H200),
benchmarks/llama3_h100_202412 (H100 limited to 500 W, with HBM2e: asked with the whole peak and with 5/7 of it, and not
counted). Tokens a second and GPU; GiB where the page has them."""
import statistics
import sys
import tempfile

from command import estimate, file_of

LLAMA2 = {"schema": "pipewright.architecture/1", "gated": True, "biases": False, "learned_positions": False,
          "tied_head": False, "vocabulary": 32000, "sequence": 4096}
MODELS = {
    "llama2-13b": {**LLAMA2, "name": "llama2-13b", "hidden": 5120, "layers": 40, "heads": 40, "ffn": 13824},
    "llama2-70b": {**LLAMA2, "name": "llama2-70b", "hidden": 8192, "layers": 80, "heads": 64, "kv_heads": 8, "ffn": 28672},
}
PEAK, LIMITED = 989e12, 989e12 * 500 / 700
# Model, devices, system, framework, samples of a micro-batch and of a step, tp, pp, vpp, recompute, products, tokens, GiB.
COUNTED = [
    ("llama2-13b", 64, "dgx-a100", "torchtitan-eager", 2, 128, 1, 1, 1, "none", "bf16", 2162, None),
    ("llama2-13b", 64, "dgx-a100", "torchtitan-eager", 2, 128, 1, 1, 1, "selective", "bf16", 1904, None),
    ("llama2-70b", 64, "dgx-a100", "torchtitan-eager", 1, 64, 1, 1, 1, "selective", "bf16", 355, None),
    ("llama2-70b", 64, "dgx-a100", "torchtitan-eager", 2, 128, 1, 1, 1, "full", "bf16", 353, None),
    ("llama3-8b", 64, "dgx-a100", "torchtitan-eager", 1, 64, 1, 1, 1, "selective", "bf16", 2973, None),
    ("llama3-70b", 64, "dgx-a100", "torchtitan-eager", 1, 64, 1, 1, 1, "full", "bf16", 331, None),
    ("llama3-8b", 32, "dgx-h200", "torchtitan", 2, 64, 1, 1, 1, "selective", "fp8", 10938, 47.96),
    ("llama3-8b", 64, "dgx-h200", "torchtitan", 2, 128, 1, 1, 1, "selective", "fp8", 10753, 46.97),
]
# Of a pipeline's local batch PyTorch makes as many micro-batches as there are stages.
LIMITED_TO_500_WATTS = [
    ("llama3-8b", 8, "torchtitan-2024", 2, 16, 1, 1, 1, "selective", "bf16", 6667, 77.0),
    ("llama3-8b", 8, "torchtitan-2024", 2, 16, 1, 1, 1, "selective", "fp8", 8532, 76.8),
    ("llama3-8b", 128, "torchtitan-2024", 2, 256, 1, 1, 1, "selective", "bf16", 6514, 62.0),
    ("llama3-8b", 128, "torchtitan-2024", 2, 256, 1, 1, 1, "selective", "fp8", 8380, 61.8),
    ("llama3-70b", 256, "torchtitan-2024", 16, 512, 8, 1, 1, "full", "fp8", 829, 71.9),
    ("llama3-405b", 512, "torchtitan-2024", 4, 256, 8, 8, 1, "full", "fp8", 100, 82.5),
    ("llama3-405b", 512, "torchtitan-2024", 2, 256, 8, 8, 2, "full", "fp8", 128, 72.7),
]


def limited_system(devices, peak):
    port = {"latency_ns": 5000, "bytes_per_second": 50e9}
    return {"schema": "pipewright.cluster/1", "name": "grand-teton", "nodes": devices // 8, "devices_per_node": 8,
            "device": {"kind": "cuda", "model": "H100", "memory_bytes": 96 << 30, "peak_flops": peak},
            "inside": {**port, "bytes_per_second": 450e9}, "across": port}


def ask(pipewright, folder, model, devices, system, framework, samples, batch, tp, pp, vpp, recompute, products):
    """Seconds of a step, GiB of the fullest rank; None where it would not fit. Sharding with a pipeline is ZeRO 1: weights are
    gathered once a step."""
    model = file_of(MODELS[model], folder, "model.json") if model in MODELS else model
    best = estimate(pipewright, model, *system, "--framework", framework, "--global-batch", batch, "--tp", tp, "--pp", pp,
                    "--vpp", vpp, "--micro-batch-size", samples, "--recompute", recompute, "--matmul-dtype", products,
                    "--sequence-parallel", "on" if tp > 1 else "off", "--zero", 3 if pp == 1 else 1, "--overlap-gradients")
    return best and (best["step_ns"] / 1e9, best["peak_bytes"] / 2**30)


def row_text(row, seconds, found):
    measured = "" if row[-1] is None else f"{row[-1]:.1f}"
    return (f"| {row[0]}, {row[1]} GPUs, {row[-3]}, {row[-4]} | {seconds:.3f} s | "
            + " | ".join(f"{step:.3f} s, {100 * (step / seconds - 1):+.1f} %" for step, _ in found)
            + f" | {measured} | {found[0][1]:.1f} |")


def main():
    errors = []
    with tempfile.TemporaryDirectory() as folder:
        print("| run | measured | estimated | GiB measured | estimated |\n" + "|---" * 5 + "|")
        for row in COUNTED:
            model, devices, system, *others, tokens, _ = row
            sequence = MODELS[model]["sequence"] if model in MODELS else 8192
            seconds = row[5] * sequence / devices / tokens
            found = ask(sys.argv[1], folder, model, devices, ["--cluster", system, "--devices", devices], *others)
            if found is None:
                print(f"| {model}, {devices} GPUs, {row[-3]}, {row[-4]} | {seconds:.3f} s | called over memory | | |")
                continue
            errors.append(found[0] / seconds - 1)
            print(row_text(row, seconds, [found]), flush=True)
        print(f"mean error {100 * statistics.mean(map(abs, errors)):.1f} %, bias {100 * statistics.mean(errors):+.1f} %\n")
        print("| H100 limited to 500 W | measured | with the whole peak | with 5/7 | GiB measured | estimated |\n" + "|---" * 6 + "|")
        for row in LIMITED_TO_500_WATTS:
            model, devices, *others, tokens, _ = row
            seconds = row[4] * 8192 / devices / tokens
            found = [ask(sys.argv[1], folder, model, devices,
                         ["--cluster", file_of(limited_system(devices, peak), folder, "cluster.json")], *others)
                     for peak in (PEAK, LIMITED)]
            print(row_text(row, seconds, found), flush=True)


if __name__ == "__main__":
    main()
