"""pipeline_profile.json, written by PaddlePaddle 3.3's own tool out of workers' logs: the order that ran, its step and the
stages' costs are found in it. The logs are ours, in the words of Paddle's executor, for it needs a GPU. Exit status 77
(skipped) where Paddle is missing.

usage: paddle_profile.py PIPEWRIGHT
"""

import json
import os
import re
import subprocess
import sys
import tempfile

from planned import SKIPPED

TOOL = "paddle.distributed.auto_parallel.static.profiler_helper_static"
TYPES = {"F": "forward", "B": "backward", "I": "backward_b", "W": "backward_w"}
CASES = (("gpipe", 2, 4, 1), ("1f1b", 4, 8, 1), ("paddle-zbh1", 4, 8, 1), ("paddle-vpp", 2, 4, 2), ("zbvpp", 4, 8, 2))
STEPS = 2


def timeline(command, folder, schedule, p, m, v):
    """(rank, action, start in ms, length in ms) of each computation."""
    trace = os.path.join(folder, "simulated.json")
    words = ["simulate", "-s", schedule, "-p", str(p), "-m", str(m), "--cost", "F=10ms,B=20ms,I=12ms,W=8ms,opt=3ms"]
    words += ["-v", str(v)] if schedule == "paddle-vpp" else []
    subprocess.run([command, *words, "--trace", trace, "-q"], check=True, stdout=subprocess.DEVNULL)
    with open(trace) as file:
        events = json.load(file)["traceEvents"]
    found = []
    for event in events:
        action = event.get("args", {}).get("action", "")
        if event["ph"] == "X" and re.fullmatch(r"\d+[FBIW]\d+|OPT", action):
            found.append((event["pid"] - 1, action, event["ts"] / 1000, event["dur"] / 1000))
    return sorted(found, key=lambda each: (each[0], each[2]))


def write_logs(folder, ran, p, v):
    """As workers write them: a rank's jobs in their order, numbered anew in each step."""
    length = max(start + took for _, _, start, took in ran) + 5
    for rank in range(p):
        own = [each for each in ran if each[0] == rank]
        with open(os.path.join(folder, f"workerlog.{rank}"), "w") as log:
            for step in range(STEPS):
                for number, (_, action, start, took) in enumerate(own):
                    stage, kind, micro_batch = re.fullmatch(r"(\d*)([FBIW]|OPT)(\d*)", action).groups()
                    name = "optimizer" if kind == "OPT" else TYPES[kind] + (str(int(stage) // p) if v > 1 else "")
                    begin = 1000 + step * length + start
                    log.write(
                        f"I1127 {step}] Profiler Info: Job ({number}), type = {name}, micro_batch_id = {micro_batch or 0}, "
                        f"job_start_time = {begin:.6f}, job_end_time = {begin + took:.6f}\n"
                    )


def nameless(rows):
    """Without the micro-batches of weight gradients, which the file does not tell: ZB-H1 of Paddle begins with the last."""
    return [[re.sub(r"W\d+", "W", action) for action in row] for row in rows]


def main():
    command = os.path.abspath(sys.argv[1])
    try:
        import paddle  # noqa: F401
    except ImportError as error:
        print(f"skipped: PaddlePaddle is not installed ({error})")
        return SKIPPED
    for schedule, p, m, v in CASES:
        with tempfile.TemporaryDirectory() as folder:
            ran = timeline(command, folder, schedule, p, m, v)
            write_logs(folder, ran, p, v)
            devices = ",".join(map(str, range(p)))
            subprocess.run(
                [sys.executable, "-m", TOOL, "--devices", devices, "--log_dir", folder], check=True, capture_output=True
            )
            wanted = [[action for rank, action, _, _ in ran if rank == r and action != "OPT"] for r in range(p)]
            for name in ("pipeline_profile.json", "pipeline_profile_perfetto.json"):
                order = os.path.join(folder, "order.csv")
                words = ["analyze", os.path.join(folder, name), "--step", "1", "-o", order, "--json"]
                done = subprocess.run([command, *words], capture_output=True, text=True)
                assert done.returncode == 0, done.stderr
                with open(order) as file:
                    rows = [[cell for cell in row.strip().split(",") if cell] for row in file]
                rows, wanted = nameless(rows), nameless(wanted)
                assert rows == wanted, f"{schedule} in {name}:\n{rows}\n{wanted}"
                step = json.loads(done.stdout)["makespan_ns"] / 1e6
                length = max(start + took for _, _, start, took in ran) - min(start for _, _, start, _ in ran)
                assert abs(step - length) < 1e-3, f"{schedule}: {step} ms, {length} ms"
        print(f"{schedule}: {sum(map(len, wanted))} computations of {p} ranks in the order that ran")
    return 0


if __name__ == "__main__":
    sys.exit(main())
