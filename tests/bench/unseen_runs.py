"""Published runs of trainers that nothing here was developed beside, asked of `pipewright estimate`: unseen_runs.py PIPEWRIGHT
[SOURCE]. Nothing is fitted to them; what a page or its code says of the trainer stands beside its rows.

Figures were copied from these files on 2026-11-30: KempnerInstitute/KempnerForge, benchmarks/mfu_scaling, config_validation,
weak_scaling_160gpu and 175b_360gpu; foundation-model-stack/fms-fsdp, README.md (two of its versions); InternLM/InternEvo,
doc/en/train_performance.md; NVIDIA/NeMo, docs/source/performance/performance_summary.md, of the containers 24.07 and 24.12."""
import statistics
import sys
import tempfile

from command import estimate, file_of

LLAMA = {"gated": True, "biases": False, "learned_positions": False, "tied_head": False, "sequence": 4096}
LLAMA2 = {**LLAMA, "vocabulary": 32000}
LLAMA3 = {**LLAMA, "vocabulary": 128256, "kv_heads": 8}
GPT = {"vocabulary": 51200, "sequence": 2048}
NEMOTRON = {"biases": False, "learned_positions": False, "tied_head": False, "vocabulary": 256000, "sequence": 4096}


def model(kind, hidden, layers, heads, ffn, **others):
    return {"schema": "pipewright.architecture/1", "name": "model", "hidden": hidden, "layers": layers, "heads": heads, "ffn": ffn,
            **kind, **others}


def cluster(device, gib, peak, inside, across, devices, per_node=8):
    """`across`: bytes per second of each device's way out."""
    port = {"latency_ns": 5000, "bytes_per_second": across}
    each = min(devices, per_node)
    return {"schema": "pipewright.cluster/1", "name": "cluster", "nodes": devices // each, "devices_per_node": each,
            "device": {"kind": "cuda", "model": device, "memory_bytes": gib << 30, "peak_flops": peak},
            "inside": {**port, "bytes_per_second": inside}, "across": port}


def a100(devices, gigabits_of_node):
    return cluster("NVIDIA A100-SXM4-80GB", 80, 312e12, 300e9, gigabits_of_node / 64 * 1e9, devices)


def h100(devices, gigabits_of_node=3200):
    return cluster("NVIDIA H100-SXM5-80GB", 80, 989e12, 450e9, gigabits_of_node / 64 * 1e9, devices)


def framework(like, **traits):
    return {"schema": "pipewright.framework/1", "name": "trainer", "like": like, **traits}


def kempner_forge():
    """PyTorch 2.11 and torch.compile; weights and both moments in bf16, gradients scattered in fp32, at the end of a step where
    it has several micro-batches; cuDNN's attention. Under tensor parallelism each product gathers its own input, which the
    estimate does not know."""
    models = {"7B": model(LLAMA3, 4096, 32, 32, 14336), "13B": model(LLAMA3, 5120, 40, 40, 17920),
              "70B": model(LLAMA3, 8192, 80, 64, 28672), "175B": model(LLAMA3, 12288, 96, 96, 39680)}
    # Model, GPUs, tp, samples of a micro-batch, micro-batches, seconds, GB.
    table = [("7B", 1, 1, 2, 4, 3.13, 80.7), ("7B", 2, 1, 2, 4, 3.50, 62.4), ("7B", 4, 1, 4, 2, 3.36, 61.1),
             ("7B", 4, 1, 8, 4, 13.49, 81.0), ("7B", 32, 1, 4, 4, 7.05, 51.3), ("13B", 8, 1, 4, 4, 14.81, 88.5),
             ("7B", 2, 2, 4, 2, 2.49, 57.8), ("7B", 4, 4, 4, 2, 1.30, 39.4), ("7B", 4, 2, 4, 2, 2.52, 45.9),
             ("7B", 8, 4, 4, 2, 1.48, 32.7), ("13B", 8, 4, 4, 4, 4.39, 45.0), ("7B", 16, 4, 4, 2, 1.58, 29.4),
             ("13B", 16, 4, 4, 4, 4.87, 39.2), ("7B", 32, 4, 4, 2, 1.68, 27.6), ("13B", 32, 4, 4, 4, 4.75, 36.2),
             ("13B", 64, 4, 4, 4, 4.84, 34.8), ("13B", 128, 4, 4, 4, 4.95, 34.0), ("13B", 160, 4, 4, 4, 4.91, 33.9),
             ("70B", 32, 4, 2, 4, 14.03, 93.2), ("70B", 64, 4, 2, 4, 14.63, 86.8), ("70B", 96, 4, 2, 4, 15.07, 84.6),
             ("70B", 128, 4, 2, 4, 14.98, 83.6), ("70B", 160, 4, 2, 4, 15.32, 82.9), ("175B", 360, 4, 8, 1, 19.09, 53.8)]
    own = {"state_bytes": 4, "optimizer_bytes": 16, "scatters_once": True, "flash_rate": 1}
    for name, gpus, tensor, samples, steps, seconds, gigabytes in table:
        like = "torchtitan-eager" if (name, tensor) == ("13B", 1) else "torchtitan"  # compiled but for that one
        yield (f"{name} on {gpus}, tp {tensor}", models[name],
               cluster("NVIDIA H200-SXM5-141GB", 141, 989e12, 450e9, 50e9, gpus, 4), framework(like, **own),
               gpus // tensor * samples * steps, samples, seconds, gigabytes * 1e9 / 2**30,
               ["--tp", tensor, "--zero", 3 if gpus > tensor else 0, "--recompute", "full",
                "--sequence-parallel", "on" if tensor > 1 else "off"])


def fms_fsdp():
    """PyTorch's first FSDP with nothing compiled, gradients in bf16; HSDP shards within a node. Rows whose selective recompute
    is of some blocks are left out."""
    models = {"7B": model(LLAMA2, 4096, 32, 32, 11008), "13B": model(LLAMA2, 5120, 40, 40, 13824),
              "34B": model(LLAMA2, 8192, 48, 64, 22016, kv_heads=8), "70B": model(LLAMA2, 8192, 80, 64, 28672, kv_heads=8)}
    table = [("7B", "A100", 2, "none", 8, 3760), ("13B", "A100", 1, "none", 8, 1700), ("34B", "A100", 8, "full", 128, 772),
             ("70B", "A100", 6, "full", 128, 380), ("34B", "A100", 2, "full", 128, 700), ("7B", "H100", 2, "none", 8, 7500),
             ("34B", "H100", 2, "full", 96, 1550)]
    for name, device, samples, recompute, shards, tokens in table:
        gpus, system = (128, a100(128, 400)) if device == "A100" else (96, h100(96, 800))
        yield (f"{name} on {gpus} {device}, {samples} samples", models[name], system,
               framework("torchtitan-eager", gradient_bytes=2), gpus * samples, samples, samples * 4096 / tokens, None,
               ["--tp", 1, "--zero", 3, "--shards", shards, "--recompute", recompute])


def intern_evo():
    """Eager PyTorch with flash attention; ZeRO 1 within a node or, by a broadcast from each rank, among all."""
    intern = model(LLAMA, 4096, 32, 32, 11008, vocabulary=103168, sequence=2048)
    scales = (8, 16, 32, 64, 128, 256, 512, 1024)
    table = [(gpus, 1, 8, 2, 4, "none", tokens)
             for gpus, tokens in zip(scales, (4078, 3939, 3919, 3944, 3928, 3920, 3835, 3625))]
    table += [(gpus, 2, 4, 4, 4, "none", tokens)
              for gpus, tokens in zip(scales, (3761, 3658, 3655, 3650, 3651, 3653, 3589, 3486))]
    table += [(gpus, 1, 8, 8, 1, "full", tokens)
              for gpus, tokens in zip(scales, (3314, 3268, 3323, 3217, 3260, 3215, 3199, 3163))]
    table += [(512, 1, 8, 4, 1, "full", 2963), (1024, 1, 8, 4, 1, "full", 2796), (1024, 1, 8, 2, 1, "full", 2341),
              (512, 1, 8, 2, 2, "none", 3084), (1024, 1, 8, 2, 2, "none", 2817), (1024, 1, 8, 2, 1, "none", 2346)]
    table += [(gpus, 1, gpus, 2, 4, "none", tokens)
              for gpus, tokens in zip(scales[1:], (3842, 3752, 3690, 3571, 3209, 2861, 2271))]
    for gpus, tensor, shards, samples, steps, recompute, tokens in table:
        batch = gpus // tensor * samples * steps
        yield (f"7B on {gpus}, tp {tensor}, {steps} of {samples} samples, {recompute}, {shards} shards", intern, a100(gpus, 400),
               framework("torchtitan-eager", gradient_bytes=2), batch, samples, batch * 2048 / gpus / tokens, None,
               ["--tp", tensor, "--zero", 1, "--shards", shards, "--recompute", recompute, "--sequence-parallel", "off"])


def nemo():
    """In FP8 on DGX H100."""
    table = [(model(GPT, 4096, 24, 32, 16384), "GPT 5B", 64, 2048, 4, 1, 1, 1, 1, (22521, 23406)),
             (model(GPT, 6144, 44, 48, 24576), "GPT 20B", 64, 256, 2, 2, 1, 1, 1, (5851, 5851)),
             (model(GPT, 12288, 96, 96, 49152), "GPT 175B", 128, 256, 1, 4, 8, 1, 6, (726, 716)),
             (model(GPT, 12288, 96, 96, 49152), "GPT 175B", 512, 2048, 2, 4, 8, 1, 6, (782, 825)),
             (model(LLAMA2, 4096, 32, 32, 11008), "Llama 2 7B", 8, 128, 1, 1, 1, 1, 1, (16847, 16934)),
             (model(LLAMA2, 5120, 40, 40, 13824), "Llama 2 13B", 16, 128, 1, 1, 4, 1, 10, (8646, 8715)),
             (model(LLAMA2, 8192, 80, 64, 28672, kv_heads=8), "Llama 2 70B", 64, 128, 1, 4, 4, 1, 20, (1707, 1728)),
             (model(NEMOTRON, 4096, 32, 32, 16384), "Nemotron 8B", 64, 256, 4, 2, 1, 1, 1, (12701, 12507)),
             (model(NEMOTRON, 6144, 40, 48, 24576), "Nemotron 22B", 64, 256, 2, 2, 4, 1, 10, (4256, 4312)),
             (model(NEMOTRON, 18432, 96, 96, 73728, kv_heads=8), "Nemotron 340B", 128, 32, 1, 8, 8, 1, 12, (322, 326)),
             (model(LLAMA3, 4096, 32, 32, 14336, sequence=8192), "Llama 3 8B", 8, 128, 1, 1, 1, 2, 1, (12036, 12273)),
             (model(LLAMA3, 8192, 80, 64, 28672, sequence=8192), "Llama 3 70B", 64, 128, 1, 4, 4, 2, 5, (1533, 1524))]
    for of, name, gpus, batch, samples, tensor, pipeline, context, chunks, figures in table:
        for container, tokens in zip(("24.07", "24.12"), figures):
            yield (f"{name} on {gpus}, {container}", of, h100(gpus), "nemo", batch, samples,
                   batch * of["sequence"] / gpus / tokens, None,
                   ["--tp", tensor, "--pp", pipeline, "--cp", context, "--vpp", chunks, "--zero", 1, "--recompute", "none",
                    "--matmul-dtype", "fp8", "--sequence-parallel", "on" if tensor > 1 else "off"])


def percent(errors):
    return f"mean error {100 * statistics.mean(map(abs, errors)):.1f} %, bias {100 * statistics.mean(errors):+.1f} %"


def main():
    sources = {"KempnerForge, H200": kempner_forge, "fms-fsdp, A100 and H100": fms_fsdp, "InternEvo, A100": intern_evo,
               "NeMo, H100": nemo}
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    with tempfile.TemporaryDirectory() as folder:
        for title, rows in sources.items():
            if wanted not in title:
                continue
            print(f"{title}\n\n| run | measured | estimated | | GiB measured | estimated |\n" + "|---" * 6 + "|")
            errors, of_memory = [], []
            for name, of, system, trainer, batch, samples, seconds, gib, flags in rows():
                trainer = trainer if isinstance(trainer, str) else file_of(trainer, folder, "framework.json")
                pipeline = [] if "--pp" in flags else ["--pp", 1]
                best = estimate(sys.argv[1], file_of(of, folder, "model.json"), "--cluster",
                                file_of(system, folder, "cluster.json"), "--framework", trainer, "--global-batch", batch,
                                "--micro-batch-size", samples, "--overlap-gradients", *pipeline, *flags)
                step, peak = best["step_ns"] / 1e9, best["peak_bytes"] / 2**30
                errors.append(step / seconds - 1)
                if gib:
                    of_memory.append(peak / gib - 1)
                print(f"| {name} | {seconds:.3f} s | {step:.3f} s | {100 * errors[-1]:+.1f} % | {f'{gib:.1f}' if gib else ''} | "
                      f"{peak:.1f} |", flush=True)
            print(f"\n{percent(errors)}" + (f"; of memory {percent(of_memory)}" if of_memory else "") + "\n")


if __name__ == "__main__":
    main()
