"""What `pipewright export --format paddle-tuner` writes, given to PaddlePaddle 3.3's own AutoTuner: it
has the plan, and nothing else, to try. Exit status 77 (skipped) where PaddlePaddle is missing."""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile

SKIPPED = 77
DEGREES = ("dp_degree", "mp_degree", "pp_degree", "vpp_degree", "sharding_degree")


def variants(plan):
    """The plan as it is, and with each kind of recomputation."""
    yield "as it is", plan
    for kind in ("full", "selective"):
        training = dict(plan.get("training", {}), recompute=kind)
        yield "recompute " + kind, dict(plan, training=training)


def tasks_of(job):
    from paddle.distributed.auto_tuner.tuner import AutoTuner

    with contextlib.redirect_stdout(io.StringIO()):
        tuner = AutoTuner(job)
    tasks = []
    while (task := tuner.search_once()) is not None:
        tasks.append(dict(task))
        tuner.add_cfg(task)
    return tasks


def problem_of(job, tasks):
    if len(tasks) != 1:
        return f"{len(tasks)} tasks"
    for degree in DEGREES:
        if [tasks[0][degree]] != job[degree]:
            return f"{degree} is {tasks[0][degree]}"
    return None


def refuses_numbers(job):
    """docs/findings.md: why degrees are lists."""
    try:
        tasks_of({**job, "pp_degree": job["pp_degree"][0]})
    except TypeError as error:
        return "argument of type 'int' is not iterable" in str(error)
    return False


def main():
    command, example = sys.argv[1:3]
    try:
        import paddle.distributed.auto_tuner.tuner
    except ImportError as error:
        print(f"skipped: PaddlePaddle is not installed here ({error})")
        return SKIPPED
    with open(example) as file:
        plan = json.load(file)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, variant in variants(plan):
            path = os.path.join(folder, "plan.json")
            with open(path, "w") as file:
                json.dump(variant, file)
            words = [command, "export", path, "--format", "paddle-tuner", "-q"]
            job = json.loads(subprocess.check_output(words))
            problem = problem_of(job, tasks_of(json.loads(json.dumps(job))))
            failed += problem is not None
            print(f"{name}: {problem or 'one task, with the degrees of the plan'}")
        failed += not refuses_numbers(job)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
