"""What Megatron core 0.16's interleaved loop computes, sends, receives and waits for on each rank, recorded while it runs, beside
`pipewright schedules export interleaved --megatron`. Exit status 77 (skipped) where Megatron core is missing.

The ranks run one after the other without a partner: what the loop does does not depend on what arrives. The functions of
torch.distributed that send, receive and wait only write down that they were called; a tensor that was
received is known by the computation that takes it.

usage: megatron_interleaved.py PIPEWRIGHT
"""

import itertools
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field

from planned import SKIPPED

EXCHANGES = {  # ours, and (overlap_p2p_comm, overlap_p2p_comm_warmup_flush, batch_p2p_comm)
    "overlap": (True, False, False),
    "warmup-flush": (True, True, False),
    "batched": (False, False, True),
    "even-odd": (False, False, False),
}


@dataclass
class End:
    """A transfer end that was posted."""

    kind: str
    peer: int
    group: str
    tensor: object
    name: str = ""


@dataclass
class Rank:
    """What one rank does, in order: ("F", "2F0"), ("post", [End, ...]), ("wait", [End, ...]), ("sync",)."""

    events: list = field(default_factory=list)
    labels: dict = field(default_factory=dict)  # of tensors, by id
    kept: list = field(default_factory=list)  # so that no id is used twice

    def label(self, tensor, name):
        self.kept.append(tensor)
        self.labels[id(tensor)] = name

    def took(self, tensor, name):
        """The receive of this tensor is called by the computation that takes it."""
        for event in self.events:
            if event[0] == "post":
                for end in event[1]:
                    if end.tensor is tensor and end.kind == "RECV":
                        end.name = name

    def post(self, ends):
        for end in ends:
            self.kept.append(end.tensor)
            end.name = self.labels[id(end.tensor)] if end.kind == "SEND" else ""
        self.events.append(("post", ends))
        return Handle(self, ends)


@dataclass
class Handle:
    rank: Rank
    ends: list

    def wait(self):
        self.rank.events.append(("wait", self.ends))


def on_a_cpu():
    """Megatron core asks for a GPU by name."""
    import torch
    from megatron.core.pipeline_parallel import schedules  # noqa: F401: before any process is forked

    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: "cpu"
    zeros = torch.zeros
    torch.zeros = lambda *size, **words: zeros(*size, **{k: v for k, v in words.items() if v != "cuda"})


def patch(now):
    """Its calls written down by now["rank"]."""
    import torch
    import torch.distributed as dist
    from megatron.core.pipeline_parallel import schedules

    def end(kind):
        def call(tensor=None, dst=None, group=None, src=None):
            name = "world" if group is dist.group.WORLD else "pipeline"
            return End(kind, dst if kind == "SEND" else src, name, tensor)

        return call

    ends = {"SEND": end("SEND"), "RECV": end("RECV")}
    dist.isend = lambda **words: now["rank"].post([ends["SEND"](**words)])
    dist.irecv = lambda **words: now["rank"].post([ends["RECV"](**words)])
    dist.P2POp = lambda op, tensor, peer, group: ends["SEND" if op is dist.isend else "RECV"](tensor, peer, group, peer)
    dist.batch_isend_irecv = lambda batch: [now["rank"].post(batch)]
    torch.cuda.synchronize = lambda *_: now["rank"].events.append(("sync",))

    forward, backward = schedules.forward_step, schedules.backward_step

    def forward_step(step, data, model, count, given, *others, **words):
        name = f"{model.stage}F{words['current_microbatch']}"
        if given is not None:
            now["rank"].took(given, f"{model.stage}RECV_F{words['current_microbatch']}")
        now["rank"].events.append(("F", name))
        made, tokens = forward(step, data, model, count, given, *others, **words)
        now["rank"].label(made, name.replace("F", "SEND_F"))
        return made, tokens

    def backward_step(given, made, gradient, *others):
        name = now["rank"].labels[id(made)].replace("SEND_F", "B")
        if gradient is not None:
            now["rank"].took(gradient, name.replace("B", "RECV_B"))
        now["rank"].events.append(("B", name))
        result = backward(given, made, gradient, *others)
        if result is not None:
            now["rank"].label(result, name.replace("B", "SEND_B"))
        return result

    schedules.forward_step, schedules.backward_step = forward_step, backward_step


def chunks_of(rank, ranks, chunks, config=None):
    """Stages of a few weights, whose inputs are those of a micro-batch where none are given."""
    import torch
    from megatron.core.enums import ModelType

    class Chunk(torch.nn.Module):
        def __init__(self, chunk):
            super().__init__()
            self.config, self.model_type, self.vp_stage = config, ModelType.encoder_or_decoder, chunk
            self.stage = chunk * ranks + rank
            self.weight = torch.nn.Parameter(torch.randn(8, 8, generator=torch.Generator().manual_seed(self.stage)))
            self.given = None

        def set_input_tensor(self, tensors):
            self.given = tensors[0]

        def forward(self, micro_batch):
            first = torch.randn(1, 1, 8, generator=torch.Generator().manual_seed(100 + micro_batch))
            given = first if self.given is None else self.given
            return given + torch.tanh(given @ self.weight)

    return [Chunk(chunk) for chunk in range(chunks)]


def run_loop(rank, ranks, chunks, micro_batches, group, exchange, forward_only=False, deallocate=False):
    """The loop on one rank, whose process group is there; its chunks, with their gradients. gloo does not keep what it sends:
    there nothing may be deallocated."""
    import torch
    from megatron.core import parallel_state
    from megatron.core.pipeline_parallel import schedules
    from megatron.core.transformer.transformer_config import TransformerConfig

    overlap, flush, batch = EXCHANGES[exchange]
    parallel_state.initialize_model_parallel(
        1, ranks, virtual_pipeline_model_parallel_size=chunks, create_gloo_process_groups=False
    )
    config = TransformerConfig(
        num_layers=ranks * chunks,
        hidden_size=8,
        num_attention_heads=1,
        pipeline_model_parallel_size=ranks,
        virtual_pipeline_model_parallel_size=chunks,
        microbatch_group_size_per_vp_stage=group,
        pipeline_dtype=torch.float32,
        deallocate_pipeline_outputs=deallocate,
        overlap_p2p_comm=overlap,
        overlap_p2p_comm_warmup_flush=flush,
        batch_p2p_comm=batch,
    )
    model = chunks_of(rank, ranks, chunks, config)
    try:
        schedules.forward_backward_pipelining_with_interleaving(
            forward_step_func=lambda data, chunk: (chunk(next(data)), lambda out: (out.square().sum(), {})),
            data_iterator=[iter(range(micro_batches)) for _ in range(chunks)],
            model=model,
            num_microbatches=micro_batches,
            seq_length=1,
            micro_batch_size=1,
            forward_only=forward_only,
        )
    finally:
        parallel_state.destroy_model_parallel()
    return model


def record_rank(now, rank, ranks, *sizes):
    """What the loop does there; the groups are those of so many ranks without their processes."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    hook = sys.excepthook  # each group adds a line to it
    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    now["rank"] = Rank()
    try:
        run_loop(rank, ranks, *sizes, deallocate=True)
    finally:
        dist.destroy_process_group()
        sys.excepthook = hook
    return now["rank"].events


def train_rank(rank, sizes, exchange, store, answers):
    """One process of several, over gloo: says how far its gradients are from those of one process without a pipeline."""
    import torch.distributed as dist

    ranks, chunks, micro_batches, group = sizes
    dist.init_process_group("gloo", rank=rank, world_size=ranks, init_method=f"file://{store}")
    model = run_loop(rank, ranks, chunks, micro_batches, group, exchange)
    whole = sorted((chunk for r in range(ranks) for chunk in chunks_of(r, ranks, chunks)), key=lambda chunk: chunk.stage)
    for micro_batch in range(micro_batches):
        out = None
        for chunk in whole:
            chunk.given = out
            out = chunk(micro_batch)
        (out.square().sum() / micro_batches).backward()
    right = [whole[chunk.stage].weight.grad for chunk in model]
    answers.put(max(float((chunk.weight.grad - grad).abs().max() / grad.abs().max()) for chunk, grad in zip(model, right)))
    dist.barrier()
    dist.destroy_process_group()


def gradients_off_by(sizes, exchange):
    """By how much the loop's gradients are wrong on gloo, relative to the largest of a stage: that of the worst rank."""
    fork = multiprocessing.get_context("fork")  # Megatron core is read once
    answers = fork.Queue()
    with tempfile.TemporaryDirectory() as folder:
        words = (sizes, exchange, os.path.join(folder, "store"), answers)
        processes = [fork.Process(target=train_rank, args=(rank, *words)) for rank in range(sizes[0])]
        for process in processes:
            process.start()
        worst = max(answers.get(timeout=120) for _ in processes)
        for process in processes:
            process.join()
    return worst


def events_of(row):
    """The same of a row that we wrote; a wait names what it waits for."""
    events = []
    for cell in row.split(","):
        batch = re.fullmatch(r"\((.*)\)BATCH_P2P", cell)
        if batch or re.fullmatch(r"\d+(SEND|RECV)_[FB]\d+", cell):
            events.append(("post", tuple(batch[1].split(";") if batch else [cell])))
        elif cell == "HOST_SYNC":
            events.append(("sync",))
        elif "WAIT_" in cell:
            events.append(("wait", (cell.replace("WAIT_", ""),)))
        elif cell:
            events.append((re.sub(r"\d", "", cell), cell))
    return events


def posted(events):
    """Computations, and what is posted together: the list without its waits."""
    return [event for event in events if event[0] not in ("wait", "sync")]


def ended_before(events, peers, use_waits):
    """(event, transfers that have ended for certain) for each computation and post. Of the sends to a peer, and of the receives
    from it, none ends before an earlier one; `peers` has the peer of each. `use_waits`: a computation waits for what it takes."""
    known, under_way, steps = set(), [], []

    def ends(names):
        for name in names:
            lane = [other for other in under_way if peers[other] == peers[name]]
            known.update(lane[: lane.index(name) + 1])

    for event in events:
        if event[0] == "wait":
            ends(event[1])
        elif event[0] == "sync":
            ends(list(under_way))
        else:
            taken = re.sub("([FB])", r"RECV_\1", event[1]) if event[0] != "post" else None
            if taken in under_way and use_waits:
                ends([taken])
            steps.append((event, set(known), taken if taken in under_way else None))
            under_way += event[1] if event[0] == "post" else ()
    return steps


def difference(theirs, ours, rank, ranks, exchange, waits_early):
    """Words for the first thing in which two ranks' events differ, or None. `waits_early`: the loop may have waited for
    receives that we wait for where they are used."""
    peers = {}
    for end in itertools.chain(*(event[1] for event in theirs if event[0] == "post")):
        peers[end.name] = (end.kind, end.peer)
        of_all = ranks == 2 and exchange != "batched" and (end.kind == "SEND") == (rank == 1)
        if end.group != ("world" if of_all else "pipeline"):
            return f"{end.name} goes over the group {end.group}"
    theirs = [(event[0], tuple(end.name for end in event[1])) if event[0] in ("post", "wait") else event for event in theirs]
    for their, our in itertools.zip_longest(posted(theirs), posted(ours)):
        if their != our:
            return f"Megatron core {their}, ours {our}"
    for (event, their, taken), (_, our, _) in zip(ended_before(theirs, peers, False), ended_before(ours, peers, True)):
        if taken is not None and taken not in their:
            return f"Megatron core computes {event[1]} before it has waited for {taken}"
        receives = {name for name in their | our if "RECV" in name}
        if event[0] == "post":  # what we wait for when it is used, the loop may wait for before it posts something
            their, our = their - receives, our - receives
        elif waits_early:
            their = their - ((their - our) & receives)
        if their != our:
            return f"before {event} Megatron core waited for {their - our} too, ours for {our - their}"
    return None


def list_of(command, sizes, group, exchange, forward_only):
    """The rows of our list, or None where it is refused."""
    ranks, chunks, micro_batches = sizes
    words = f"schedules export interleaved -p {ranks} -v {chunks} -m {micro_batches} --param group={group} -q".split()
    more = [] if forward_only else ["--megatron", exchange]
    done = subprocess.run([command, *words, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0 or not forward_only:
        return done.stdout.splitlines() if done.returncode == 0 else None
    words = ["simulate", "-", "--megatron", exchange, "--emit-order", "--json", "-q"]
    forwards = re.sub(r"\d+B\d+", "", done.stdout)
    done = subprocess.run([command, *words], input=forwards, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return [",".join(row) for row in json.loads(done.stdout)["order"]] if done.returncode == 0 else None


def cases():
    """((ranks, chunks, micro-batches), group, exchange, forward_only): every group from p - 1 on, whether or not the loop
    takes it, for trainings; some for forwards alone."""
    for ranks, chunks in [(2, 2), (2, 3), (3, 2), (3, 3), (4, 2), (5, 2)]:
        for micro_batches in range(ranks, 2 * ranks + 3):
            for group in range(ranks - 1, micro_batches + 1):
                for exchange in EXCHANGES:
                    yield (ranks, chunks, micro_batches), group, exchange, False
    for sizes, exchange in itertools.product([(2, 2, 5, 5), (3, 2, 7, 4), (4, 3, 6, 6)], EXCHANGES):
        yield sizes[:3], sizes[3], exchange, True


def compare(command, now):
    """Counts of what was compared; None after the first difference, which it prints."""
    counts = {"lists compared": 0, "of forwards alone": 0, "sizes refused by both": 0, "lists in which a receive may be waited for early": 0}
    for sizes, group, exchange, forward_only in cases():
        ours = list_of(command, sizes, group, exchange, forward_only)
        for rank in range(sizes[0]):
            early = exchange == "overlap" and rank == 0 and group > sizes[0] and not forward_only
            problem = None
            try:
                theirs = record_rank(now, rank, *sizes, group, exchange, forward_only)
            except (ValueError, RuntimeError) as error:
                if ours is None:
                    counts["sizes refused by both"] += 1
                    break
                problem = f"Megatron core refuses: {error}"
            if ours is None:
                problem = "ours is refused"
            problem = problem or difference(theirs, events_of(ours[rank]), rank, sizes[0], exchange, early)
            if problem:
                print(f"{sizes}, group {group}, {exchange}, rank {rank}: {problem}")
                return None
            counts["lists compared"] += 1
            counts["of forwards alone"] += forward_only
            counts["lists in which a receive may be waited for early"] += early
    return counts


def trains_as_judged(command):
    """Whether gradients are right exactly where `pipewright check` says that the list ends with the right tensors."""
    wrong = 0
    for sizes, exchange in itertools.product([(2, 2, 4, 2), (3, 2, 3, 3)], EXCHANGES):
        ranks, chunks, micro_batches, group = sizes
        words = f"check -s interleaved -p {ranks} -v {chunks} -m {micro_batches} --param group={group} --megatron {exchange} --json -q"
        done = subprocess.run([command, *words.split()], stdout=subprocess.PIPE, text=True)
        verdict, off_by = json.loads(done.stdout)["verdict"], gradients_off_by(sizes, exchange)
        wrong += (off_by < 1e-5) != (verdict == "ok")
        print(f"{sizes}, {exchange}: {verdict}, gradients on gloo off by {off_by:.2g}")
    return wrong == 0


def main():
    try:
        import megatron.core
    except ImportError as error:
        print(f"skipped: Megatron core is not installed here ({error})")
        return SKIPPED
    if not megatron.core.__version__.startswith("0.16"):
        print(f"skipped: this is Megatron core {megatron.core.__version__}, and the lists are of 0.16")
        return SKIPPED
    on_a_cpu()
    trained = trains_as_judged(sys.argv[1])
    now = {}
    patch(now)
    counts = compare(sys.argv[1], now)
    if counts is not None:
        print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return 0 if trained and counts is not None else 1


if __name__ == "__main__":
    sys.exit(main())
