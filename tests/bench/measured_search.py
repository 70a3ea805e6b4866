"""How many runs `pipewright tune --measure` needs where the truth is known: measured_search.py PIPEWRIGHT [GOLDEN] [TABLE].
The command that it runs looks a configuration up in a published table (golden/measured, golden/measured2). For each
group of rows that differ in the configuration alone: is the best row, or one within 3 % of it, among at most five runs?
Beside it the chance that five rows drawn at random have one. Groups of five rows or fewer are counted apart: there
every search that goes on finds it. Nothing is fitted to a table beforehand but what docs/cost-model.md names."""
import collections
import csv
import json
import math
import os
import subprocess
import sys
import tempfile

RUNS, CLOSE = 5, 1.03
A100 = {"kind": "cuda", "model": "NVIDIA A100-SXM4-80GB", "memory_bytes": 85899345920, "peak_flops": 312e12}
T4 = {"kind": "cuda", "model": "NVIDIA T4", "memory_bytes": 17179869184, "peak_flops": 65e12}
V100 = {"kind": "cuda", "model": "NVIDIA V100-SXM2-16GB", "memory_bytes": 17179869184, "peak_flops": 125e12}


def port(bytes_per_second):
    return {"latency_ns": 10000, "bytes_per_second": bytes_per_second}


def nodes_of_a100(devices, bytes_per_second):
    """DGX A100, whole nodes; fewer devices are a node of their own. The rate is that of a device's port."""
    each = min(8, devices)
    return {"schema": "pipewright.cluster/1", "name": f"{devices} A100", "nodes": devices // each,
            "devices_per_node": each, "device": A100, "inside": port(300e9), "across": port(bytes_per_second)}


def gpt(hidden, layers, heads, vocabulary, sequence, learned_positions=True):
    return {"schema": "pipewright.architecture/1", "name": "gpt", "hidden": hidden, "layers": layers, "heads": heads,
            "kv_heads": heads, "ffn": 4 * hidden, "gated": False, "biases": True, "vocabulary": vocabulary,
            "sequence": sequence, "learned_positions": learned_positions, "tied_head": True}


def configuration(tp, pp, dp, micro_batch, **others):
    words = {"tp": tp, "pp": pp, "dp": dp, "micro_batch_size": micro_batch, **others}
    return ",".join(f"{key}={value}" for key, value in words.items())


class Group:
    """A job and its rows: configuration to seconds. Of a row that was measured twice the first counts."""

    def __init__(self, model, cluster, batch):
        self.job = {"schema": "pipewright.job/1", "model": model, "cluster": cluster, "global_batch": batch,
                    "strategy": {"framework": "megatron-deepspeed", "schedule_mode": "1f1b"}}
        self.rows = {}

    def add(self, text, seconds):
        self.rows.setdefault(text, seconds)


def vtrain_several_nodes(golden):
    groups = {}
    for row in json.load(open(f"{golden}/measured/vtrain_multi_node.json"))["rows"]:
        _, gpus, batch, size, hidden, heads, layers, sequence, tp, dp, pp, milliseconds = row
        key = gpus, batch, hidden, layers, heads
        group = groups.setdefault(key, Group(gpt(hidden, layers, heads, 51200, sequence),
                                             nodes_of_a100(gpus, 12.5e9), batch))
        group.add(configuration(tp, pp, dp, size, recompute="full"), milliseconds / 1e3)
    return groups


def vtrain_one_node(golden):
    groups = {}
    lines = csv.reader(open(f"{golden}/measured/vtrain_single_node.csv", encoding="utf-8-sig"))
    next(lines)
    for row in lines:
        gpus, batch, size, hidden, heads, layers, sequence, tp, dp, pp = map(int, row[:10])
        key = gpus, batch, hidden, layers, heads
        group = groups.setdefault(key, Group(gpt(hidden, layers, heads, 50257, sequence),
                                             nodes_of_a100(gpus, 12.5e9), batch))
        group.add(configuration(tp, pp, dp, size), float(row[10]) / 1e3)
    return groups


def bloom(golden):
    groups = {}
    for row in json.load(open(f"{golden}/measured2/bigscience_176b_a100.json"))["rows"]:
        hidden, dp = row["hidden"], row["gpus"] // (row["tp"] * row["pp"])
        if "step_s" not in row or dp * row["tp"] * row["pp"] != row["gpus"] or row["gbs"] % (dp * row["mbs"]) != 0:
            continue
        heads = row.get("heads") or (96 if hidden % 96 == 0 else 64)
        key = row["gpus"], row["gbs"], hidden, row["layers"], heads
        group = groups.setdefault(key, Group(gpt(hidden, row["layers"], heads, 250880, 2048, False),
                                             nodes_of_a100(row["gpus"], 6.25e9), row["gbs"]))
        group.add(configuration(row["tp"], row["pp"], dp, row["mbs"], recompute="full", zero=1), row["step_s"])
    return groups


def amp(golden, file, cluster):
    document = json.load(open(f"{golden}/measured/{file}"))
    group = Group(gpt(1024, 24, 16, 52256, 1024), cluster, document["gbs"])
    for row in document["rows"]:
        if row["measured_s"] is not None:
            group.add(configuration(row["tp"], row["pp"], row["dp"], row["mbs"]), row["measured_s"])
    return {file: group}


def amp_t4(golden):
    # G4dn.12xlarge: 50 Gb/s inside and out; tests/support/measured/others.cpp has the shares that collectives reach.
    return amp(golden, "amp_homogeneous.json",
               {"schema": "pipewright.cluster/1", "name": "16 T4", "nodes": 4, "devices_per_node": 4, "device": T4,
                "inside": port(3.667e9), "across": port(0.9375e9)})


def amp_mixed(golden):
    p3 = {"nodes": 3, "device": V100, "inside": port(24.5e9), "across": port(0.3125e9)}
    g4 = {"nodes": 1, "device": T4, "inside": port(3.667e9), "across": port(0.9375e9)}
    return amp(golden, "amp_het_cluster.json",
               {"schema": "pipewright.cluster/1", "name": "12 V100 and 4 T4", "devices_per_node": 4,
                "node_kinds": [p3, g4]})


TABLES = {"vTrain, several nodes": vtrain_several_nodes, "vTrain, one node": vtrain_one_node,
          "BLOOM's trials": bloom, "AMP, 16 T4": amp_t4, "AMP, 12 V100 and 4 T4": amp_mixed}


def chance_at_random(rows):
    """That RUNS different rows, each as likely as any, have one within CLOSE of the best."""
    best = min(rows.values())
    close = sum(seconds <= CLOSE * best for seconds in rows.values())
    if len(rows) <= RUNS:
        return 1.0
    return 1 - math.comb(len(rows) - close, RUNS) / math.comb(len(rows), RUNS)


def search(command, folder, group):
    """The measured trials: pairs of configuration and seconds."""
    def write(name, text):
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)
    write("job.json", json.dumps(group.job))
    write("among", "".join(text + "\n" for text in group.rows))
    write("table", "".join(f"{text} {seconds}\n" for text, seconds in group.rows.items()))
    done = subprocess.run(
        [command, "tune", "job.json", "--json", "--quiet", "--among", "among", "--runs", str(RUNS),
         "--measure", "awk -v c={configuration} '$1 == c {print \"step_s \" $2}' table",
         "--read", "step_s=step_s ([0-9.]+)"], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{group.job}\n{done.stdout}\n{done.stderr}")
    found = json.loads(done.stdout)["measuring"]
    return [group.rows[trial["configuration"]] for trial in found["trials"]]


def main():
    command = os.path.abspath(sys.argv[1])
    golden = sys.argv[2] if len(sys.argv) > 2 else os.path.join(os.path.dirname(__file__), "../../../shared/golden")
    names = sys.argv[3:] or list(TABLES)
    print("| table | groups | found | runs | of more than 5 rows | found | random | first run |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            totals = collections.Counter()
            random = 0.0
            for group in TABLES[name](golden).values():
                if len(group.rows) < 3:
                    continue
                trials = search(command, folder, group)
                aim = CLOSE * min(group.rows.values())
                found, is_large = min(trials) <= aim, len(group.rows) > RUNS
                totals.update(groups=1, found=int(found), runs=len(trials), first=int(trials[0] <= aim), large=int(is_large),
                              found_large=int(found and is_large))
                if is_large:
                    random += chance_at_random(group.rows)
                if not found:
                    print(f"<!-- {name}: {min(trials) / min(group.rows.values()) - 1:.1%} slower than the best of "
                          f"{len(group.rows)}: {group.job['cluster']['name']} {group.job['global_batch']} -->")
            count, large = totals["groups"], max(1, totals["large"])
            print(f"| {name} | {count} | {totals['found'] / count:.0%} | {totals['runs'] / count:.1f} | "
                  f"{totals['large']} | {totals['found_large'] / large:.0%} | {random / large:.0%} | "
                  f"{totals['first'] / count:.0%} |", flush=True)


if __name__ == "__main__":
    main()
