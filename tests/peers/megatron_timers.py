"""Megatron core 0.16's own schedule with its own timers, run by gloo processes on a CPU: what it prints is read by
`pipewright analyze`. Exit status 77 (skipped) where Megatron core is missing.

usage: megatron_timers.py PIPEWRIGHT
"""

import json
import logging
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time

from megatron_interleaved import on_a_cpu
from planned import SKIPPED

RANKS, MICRO_BATCHES, ITERATIONS = 2, 6, 3
WIDTH, PRODUCTS = 256, (2, 6)  # matrix products of the two stages
NAMES = [
    *("forward-backward", "forward-compute", "backward-compute", "forward-recv", "forward-send", "backward-recv"),
    *("backward-send", "forward-send-backward-recv", "backward-send-forward-recv"),
]


def stage_of(rank, config):
    import torch
    from megatron.core.enums import ModelType

    class Stage(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.config, self.model_type, self.given = config, ModelType.encoder_or_decoder, None
            self.weights = torch.nn.ParameterList(torch.randn(WIDTH, WIDTH) / 16 for _ in range(PRODUCTS[rank]))

        def set_input_tensor(self, tensors):
            self.given = tensors[0] if isinstance(tensors, list) else tensors

        def forward(self, first):
            out = first if self.given is None else self.given
            for weight in self.weights:
                out = torch.tanh(out @ weight)
            return out

    return Stage()


def train_rank(rank, option, store, log):
    import torch
    import torch.distributed as dist
    from megatron.core import parallel_state
    from megatron.core.pipeline_parallel import schedules
    from megatron.core.timers import Timers
    from megatron.core.transformer.transformer_config import TransformerConfig

    torch.set_num_threads(1)
    logging.basicConfig(level=logging.INFO, format="%(message)s", filename=log if rank == RANKS - 1 else os.devnull)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS, init_method=f"file://{store}")
    parallel_state.initialize_model_parallel(1, RANKS, create_gloo_process_groups=False)
    config = TransformerConfig(
        num_layers=RANKS,
        hidden_size=WIDTH,
        num_attention_heads=1,
        pipeline_model_parallel_size=RANKS,
        pipeline_dtype=torch.float32,
        deallocate_pipeline_outputs=False,  # gloo does not keep what it sends
        batch_p2p_comm=False,
    )
    config.timers = timers = Timers(2, option)
    model = stage_of(rank, config)
    for iteration in range(1, ITERATIONS + 1):
        begin = time.monotonic()
        schedules.forward_backward_pipelining_without_interleaving(
            forward_step_func=lambda data, stage: (stage(next(data)), lambda out: (out.square().sum(), {})),
            data_iterator=iter([torch.randn(128, 1, WIDTH) for _ in range(MICRO_BATCHES)]),
            model=[model],
            num_microbatches=MICRO_BATCHES,
            seq_length=128,
            micro_batch_size=1,
            forward_only=False,
        )
        if rank == RANKS - 1:  # as Megatron-LM's training loop, which is not in the package
            ms = 1000 * (time.monotonic() - begin)
            logging.info(" iteration %8d/%8d | elapsed time per iteration (ms): %.1f |", iteration, ITERATIONS, ms)
        timers.log(NAMES)
    dist.barrier()
    dist.destroy_process_group()


def log_of(option, folder):
    fork = multiprocessing.get_context("fork")  # Megatron core is read once
    log = os.path.join(folder, option + ".log")
    words = (option, os.path.join(folder, option), log)
    processes = [fork.Process(target=train_rank, args=(rank, *words)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0, f"a rank ended with {process.exitcode}"
    return log


def analyzed(command, *words):
    return subprocess.run([command, "analyze", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def check_all(command, log):
    words = (log, "--pp", str(RANKS), "--micro-batches", str(MICRO_BATCHES), "--step", str(ITERATIONS), "--json")
    done = analyzed(command, *words)
    assert done.returncode == 0, done.stderr
    timers = json.loads(done.stdout)["timers"]
    with open(log) as file:
        last = file.read().rsplit("times across ranks", 1)[1]
    printed = {name: re.findall(rf"  {name}:((?:\n +rank +\d+: [\d.]+)+)", last) for name in NAMES}
    for name, member in ("forward-backward", "passes_ns"), ("forward-compute", "forward_ns"), ("backward-compute", "backward_ns"):
        for rank, ms in re.findall(r"rank +(\d+): ([\d.]+)", printed[name][0]):
            ours = timers["ranks"][int(rank)][member]
            assert abs(ours / 1e6 - float(ms)) < 1e-6, f"{name} of rank {rank}: {ms} ms printed, {ours} ns read"
    for rank in timers["ranks"]:
        within = sum(rank[part] for part in ("forward_ns", "backward_ns", "messages_ns", "sums_ns"))
        assert within <= 1.01 * rank["passes_ns"], f"more than the passes: {rank}"
    assert timers["prints"] == ITERATIONS and timers["iteration"] == ITERATIONS, timers
    simulated, passes = timers["simulated"]["makespan_ns"], timers["passes_ns"]
    print(f"passes {passes / 1e6:.1f} ms, simulated with their costs {simulated / 1e6:.1f} ms ({simulated / passes - 1:+.1%})")
    assert simulated <= 1.05 * passes, "the schedule alone takes longer than it did with messages"


def main():
    try:
        import megatron.core.timers  # noqa: F401
    except ImportError:
        print("Megatron core is not installed")
        return SKIPPED
    on_a_cpu()
    with tempfile.TemporaryDirectory() as folder:
        check_all(sys.argv[1], log_of("all", folder))
        for option in "minmax", "max":
            done = analyzed(sys.argv[1], log_of(option, folder))
            assert done.returncode == 2 and "--timing-log-option all" in done.stderr, done.stderr
    return 0


if __name__ == "__main__":
    sys.exit(main())
