"""The lists of PaddlePaddle 3.3's own VPP pass: ours are the same, and docs/findings.md says which of them cannot end under
any communication. Exit status 77 (skipped) where it is missing.

usage: paddle_vpp.py PIPEWRIGHT
"""

import json
import re
import subprocess
import sys

from planned import SKIPPED

# Of p ranks and v chunks, with p to 4 p micro-batches: with which they never end. With all others they do.
STUCK = {
    **{(2, v): () for v in (2, 3, 4)},
    **{(3, v): () for v in (2, 3, 4)},
    (4, 2): (),
    (4, 3): (5, 9, 13),
    (4, 4): (5, 9, 13),
    (5, 2): (7, 12, 17),
    (5, 3): (6, 7, 11, 12, 16, 17),
    (6, 2): (8, 9, 14, 15, 20, 21),
}


def paddles(make, p, m, v):
    """The computations of every rank, as rows of an order."""
    rows = []
    for rank in range(p):
        schedule = make()
        for name, value in {"num_micro_batches": m, "pp_stage": rank, "pp_degree": p, "vpp_degree": v}.items():
            schedule.set_attr(name, value)
        jobs = [(job.type(), job.micro_batch_id()) for job in schedule._pir_create_job_list()]
        computed = [(re.fullmatch(r"(forward|backward)(\d+)", name), number) for name, number in jobs]
        rows.append([f"{int(job[2]) * p + rank}{job[1][0].upper()}{number}" for job, number in computed if job])
    return rows


def ours(command, p, m, v):
    words = ["schedules", "export", "paddle-vpp", "-p", str(p), "-m", str(m), "-v", str(v)]
    text = subprocess.run([command, *words], check=True, capture_output=True, text=True).stdout
    return [[cell for cell in row.split(",") if "_" not in cell] for row in text.splitlines()]


def ends(command, rows):
    """Where no transfer waits for another: what then hangs, hangs with every library."""
    text = "".join(",".join(row) + "\n" for row in rows)
    words = [command, "check", "-", "--preset", "ideal", "--json"]
    done = subprocess.run(words, input=text, capture_output=True, text=True)
    verdict = json.loads(done.stdout)["verdict"]
    if verdict not in ("ok", "deadlock"):
        raise AssertionError(f"{verdict}: {done.stdout}")
    return verdict == "ok"


def main():
    try:
        import paddle
        from paddle.distributed.passes.pipeline_scheduler_pass.pipeline_vpp import PipelineVirtualPipelinePass
    except ImportError as error:
        print(f"skipped: PaddlePaddle is not installed here ({error})")
        return SKIPPED
    if not paddle.__version__.startswith("3.3."):
        print(f"skipped: this is PaddlePaddle {paddle.__version__}, and the page is about 3.3")
        return SKIPPED
    failed = False
    for (p, v), expected in STUCK.items():
        stuck = []
        for m in range(p, 4 * p + 1):
            rows = paddles(PipelineVirtualPipelinePass, p, m, v)
            if rows != ours(sys.argv[1], p, m, v):
                print(f"p={p} m={m} v={v}: ours is another order")
                failed = True
            if not ends(sys.argv[1], rows):
                stuck.append(m)
        failed = failed or tuple(stuck) != expected
        print(f"p={p} v={v}: of m={p} to {4 * p} these never end: {stuck}, expected {list(expected)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
