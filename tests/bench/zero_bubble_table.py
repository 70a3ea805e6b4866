"""Steps and peaks that `pipewright tune` predicts for the runs of the zero-bubble paper: zero_bubble_table.py PIPEWRIGHT.
arXiv:2401.10241, Tables 3 and 4: four GPTs on 8 to 32 A100 under four schedules, in samples per GPU and second, and GB.
The figures were typed from memory, for the paper was not at hand: 71 of 72 pairs of rows of one set-up differ, as
others have counted, and 1F1B's and ZB-2p's steps are 4 to 12 % above what its Tables 5 and 9 give. Nothing is fitted to them. The
cut of the layers is tune's own; links are those of a DGX A100 and a port of 200 Gb/s for each GPU."""
import json
import os
import statistics
import subprocess
import sys
import tempfile

# Model: layers, heads, hidden size, GPUs, samples of a micro-batch, micro-batches.
SETUPS = {
    "1.5B": (22, 24, 2304, 8, 6, (24, 32, 64)),
    "6.2B": (30, 32, 4096, 8, 3, (24, 32, 64)),
    "14.6B": (46, 40, 5120, 16, 1, (48, 64, 128)),
    "28.3B": (62, 48, 6144, 32, 1, (96, 128, 256)),
}
# By schedule and set-up: samples per GPU and second, by number of micro-batches; GB.
MEASURED = {
    "zb-2p": {"1.5B": ((14.5, 14.8, 14.9), 59), "6.2B": ((4.32, 4.35, 4.39), 70),
              "14.6B": ((1.81, 1.83, 1.85), 51), "28.3B": ((0.99, 1.00, 1.00), 74)},
    "zb-1p": {"1.5B": ((12.9, 13.4, 14.2), 32), "6.2B": ((3.88, 4.00, 4.20), 42),
              "14.6B": ((1.61, 1.67, 1.76), 33), "28.3B": ((0.87, 0.90, 0.96), 44)},
    "1f1b": {"1.5B": ((11.8, 12.5, 13.6), 30), "6.2B": ((3.50, 3.70, 4.03), 39),
             "14.6B": ((1.40, 1.49, 1.64), 32), "28.3B": ((0.76, 0.80, 0.88), 43)},
    "interleaved": {"1.5B": ((13.1, 13.4, 13.9), 40), "6.2B": ((4.01, 4.08, 4.19), 48),
                    "14.6B": ((1.54, 1.59, 1.66), 39), "28.3B": ((0.82, 0.85, 0.90), 58)},
}


def job_of(name, schedule, micro_batches):
    layers, heads, hidden, gpus, samples, _ = SETUPS[name]
    strategy = {"framework": "megatron-lm", "schedule_mode": schedule, "mp_degree": 1, "pp_degree": gpus, "dp_degree": 1,
                "micro_batch_size": samples, "recompute": "none"}
    if schedule == "interleaved":
        strategy["vpp_degree"] = (layers + 2) // gpus  # stages of one layer, embedding and head counted as one each
    model = {"schema": "pipewright.architecture/1", "name": name, "hidden": hidden, "layers": layers, "heads": heads,
             "vocabulary": 50304, "sequence": 1024, "tied_head": False}
    return {"schema": "pipewright.job/1", "model": model, "cluster": {"preset": "dgx-a100", "devices": gpus},
            "global_batch": micro_batches * samples, "strategy": strategy}


def best_of(pipewright, job, folder):
    path = os.path.join(folder, "job.json")
    with open(path, "w") as file:
        json.dump(job, file)
    words = [pipewright, "tune", path, "--json", "--quiet", "--top", "1", "--no-synthesis", "--out", os.devnull]
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)["best"]


def pairs_in_order(rows):
    """Of the pairs of one set-up whose measured times differ: how many are predicted in that order, and all of them."""
    pairs = [(a, b) for place, a in enumerate(rows) for b in rows[:place] if a[0] != b[0]]
    return sum((a[0] < b[0]) == (a[1] < b[1]) for a, b in pairs), len(pairs)


def main():
    errors, peaks, right, pairs = {schedule: [] for schedule in MEASURED}, [], 0, 0
    print("| model | micro-batches | schedule | measured | predicted | error | GB measured | predicted |\n" + "|---" * 8 + "|")
    with tempfile.TemporaryDirectory() as folder:
        for name, (_, _, _, gpus, samples, counts) in SETUPS.items():
            for place, micro_batches in enumerate(counts):
                rows = []
                for schedule, measured in MEASURED.items():
                    speeds, peak = measured[name]
                    seconds = micro_batches * samples / gpus / speeds[place]
                    best = best_of(sys.argv[1], job_of(name, schedule, micro_batches), folder)
                    rows.append((seconds, best["step_ns"] / 1e9))
                    errors[schedule].append(rows[-1][1] / seconds - 1)
                    peaks.append(best["peak_bytes"] / 1e9 / peak - 1)
                    print(f"| {name} | {micro_batches} | {schedule} | {seconds:.3f} s | {rows[-1][1]:.3f} s "
                          f"| {100 * errors[schedule][-1]:+.1f} % | {peak} | {best['peak_bytes'] / 1e9:.1f} |", flush=True)
                found = pairs_in_order(rows)
                right, pairs = right + found[0], pairs + found[1]
    for schedule, found in errors.items():
        print(f"{schedule}: mean error {100 * statistics.mean(map(abs, found)):.1f} %, bias {100 * statistics.mean(found):+.1f} %")
    everything = [error for found in errors.values() for error in found]
    print(f"all: mean error {100 * statistics.mean(map(abs, everything)):.1f} %, bias {100 * statistics.mean(everything):+.1f} %; "
          f"{right} of {pairs} pairs in order; peaks {100 * statistics.mean(map(abs, peaks)):.1f} % off")


if __name__ == "__main__":
    main()
