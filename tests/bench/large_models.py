"""Published runs of large models, asked of `pipewright estimate`: large_models.py PIPEWRIGHT. Nothing is fitted to them.
Their figures were typed from memory; the papers were not at hand."""
import statistics
import sys
import tempfile

from command import estimate, file_of

GPT = {"schema": "pipewright.architecture/1", "sequence": 2048, "vocabulary": 51200}
MODELS = {
    "gpt-175b": {**GPT, "name": "gpt-175b", "hidden": 12288, "layers": 96, "heads": 96},
    "gpt-530b": {**GPT, "name": "gpt-530b", "hidden": 20480, "layers": 105, "heads": 128},
    "gpt-175b-64k": {**GPT, "name": "gpt-175b-64k", "hidden": 12288, "layers": 96, "heads": 128, "vocabulary": 65536},
    "nemotron-4-340b": {**GPT, "name": "nemotron-4-340b", "hidden": 18432, "layers": 96, "heads": 96, "kv_heads": 8, "ffn": 73728,
                        "sequence": 4096, "vocabulary": 256000, "biases": False, "learned_positions": False, "tied_head": False},
}
OF_2021 = ("--recompute", "full", "--sequence-parallel", "off")


def flops_of(model, batch):
    """Of a step whose blocks are all computed again (arXiv:2104.04473, equation 3)."""
    layers, hidden, sequence, vocabulary = (model[key] for key in ("layers", "hidden", "sequence", "vocabulary"))
    return 96 * batch * sequence * layers * hidden**2 * (1 + sequence / (6 * hidden) + vocabulary / (16 * layers * hidden))


def of_2021(model, framework, gpus, batch, samples, teraflops, *flags):
    seconds = flops_of(MODELS[model], batch) / gpus / teraflops / 1e12
    return (f"{model}, {gpus} A100", model, "dgx-a100", framework, gpus, batch, samples, seconds, *OF_2021, *flags)


def tables():
    sharded = ("--zero", 3, "--tp", 1, "--pp", 1)
    yield "ZeRO 3, DeepSpeed (arXiv:2104.04473, Table 2)", [
        of_2021("gpt-175b", "megatron-deepspeed", gpus, 1536, samples, teraflops, *sharded)
        for gpus, samples, teraflops in ((384, 4, 144), (768, 2, 88), (1536, 1, 44))
    ] + [
        of_2021("gpt-530b", "megatron-deepspeed", gpus, batch, samples, teraflops, *sharded)
        for gpus, batch, samples, teraflops in ((640, 2560, 4, 138), (1120, 2240, 2, 98), (2240, 2240, 1, 48))
    ]
    yield "tensor and pipeline parallel (the same table)", [
        of_2021("gpt-175b", "megatron-lm-2021", gpus, 1536, 1, teraflops, "--zero", 0, "--tp", 8, "--pp", 12)
        for gpus, teraflops in ((384, 153), (768, 149), (1536, 141))
    ] + [
        of_2021("gpt-530b", "megatron-lm-2021", gpus, 2240, 1, teraflops, "--zero", 0, "--tp", 8, "--pp", 35)
        for gpus, teraflops in ((560, 171), (1120, 167), (2240, 159))
    ]
    yield "Megatron-Turing NLG, 530B (arXiv:2201.11990, §3)", [
        (f"{gpus} A100", "gpt-530b", "dgx-a100", "megatron-deepspeed", gpus, 1920, 1, seconds, *OF_2021, "--zero", 0,
         "--tp", 8, "--pp", 35, "--vpp", 1, "--grad-accum-dtype", "fp32")
        for gpus, seconds in ((2240, 60.1), (2800, 50.2), (3360, 44.4))
    ]
    yield "Megatron-LM in MegaScale's paper (arXiv:2402.15627, Table 2)", [
        (f"{gpus} A100, batch {batch}", "gpt-175b-64k", "dgx-a100", "megatron-lm", gpus, batch, 1, seconds, "--tp", 8, "--pp", 8,
         "--vpp", 6, "--zero", "0,1", "--recompute", "selective,full", "--sequence-parallel", "on,off")
        for gpus, batch, seconds in ((256, 768, 40.0), (512, 768, 21.2), (768, 768, 15.2), (1024, 768, 11.9),
                                     (3072, 6144, 29.02), (6144, 6144, 14.78), (8192, 6144, 12.24), (12288, 6144, 8.57))
    ]
    yield "Nemotron-4 340B (arXiv:2406.11704, Table 2)", [
        (f"{gpus} H100, batch {batch}", "nemotron-4-340b", "dgx-h100", "megatron-core", gpus, batch, 1, seconds, "--tp", 8, "--pp", 12,
         "--vpp", 8, "--zero", 1, "--overlap-gradients", "--recompute", "none", "--sequence-parallel", "on")
        for gpus, batch, seconds in ((1536, 768, 10.3), (3072, 1536, 10.3), (6144, 2304, 8.0))
    ]


def main():
    with tempfile.TemporaryDirectory() as folder:
        for title, rows in tables():
            print(f"{title}\n\n| run | measured | estimated | | peak |\n" + "|---" * 5 + "|")
            errors = []
            for name, model, system, framework, gpus, batch, samples, seconds, *flags in rows:
                file = file_of(MODELS[model], folder, "model.json")
                best = estimate(sys.argv[1], file, "--cluster", system, "--devices", gpus, "--global-batch", batch,
                                "--framework", framework, "--micro-batch-size", samples, *flags)
                step = best["step_ns"] / 1e9
                errors.append(step / seconds - 1)
                print(f"| {name} | {seconds:.1f} s | {step:.1f} s | {100 * errors[-1]:+.1f} % | "
                      f"{best['peak_bytes'] / 2**30:.1f} GiB |", flush=True)
            print(f"\nmean error {100 * statistics.mean(map(abs, errors)):.1f} %, bias {100 * statistics.mean(errors):+.1f} %\n")


if __name__ == "__main__":
    main()
