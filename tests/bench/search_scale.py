"""What `pipewright tune` takes on clusters of 64 to 16,384 GPUs: search_scale.py PIPEWRIGHT [NAME...].
A row a job: configurations and how many were simulated, seconds of wall and CPU time of the whole process with its plan
written, the most memory, and the longest time in which a terminal showed nothing new. NAME: only the jobs whose name
has one of these in it."""
import json
import os
import pty
import select
import subprocess
import sys
import tempfile
import time


def job(model, devices, batch, **strategy):
    return {"schema": "pipewright.job/1", "model": model, "cluster": {"preset": "dgx-h100", "devices": devices},
            "global_batch": batch, "strategy": strategy}


# A pipeline goes through the devices of a node first: its ranks are on one node or on two.
ACROSS = {"pp_degree": 16, "mp_degree": 1, "rank_order": "tp-cp-pp-dp"}


def jobs():
    for devices in (64, 1024, 4096, 16384):
        yield "llama3-8b", job("llama3-8b", devices, devices)
    for devices in (1024, 4096, 16384):
        yield "deepseek-v3", job("deepseek-v3", devices, 15360)
    yield "llama3-405b", job("llama3-405b", 1024, 512)
    yield "deepseek-v3", job("deepseek-v3", 2048, 15360)
    yield "llama3-405b", job("llama3-405b", 16384, 2048)
    for model, batch in (("gpt3-175b", 1536), ("llama3-70b", 1024), ("mixtral-8x7b", 1024)):
        for devices in (64, 1024, 16384):
            yield model, job(model, devices, max(batch, devices))
    for devices in (64, 4096, 16384):
        yield "llama3-8b across nodes", job("llama3-8b", devices, devices, **ACROSS)


class Measured:
    """One run, its progress shown on a terminal of its own."""

    def __init__(self, pipewright, path, plan):
        ours, theirs = pty.openpty()
        begin = last = time.monotonic()
        words = [pipewright, "tune", path, "-o", plan, "--json"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=theirs,
                                   env={**os.environ, "TERM": "xterm"})
        os.close(theirs)
        self.silence, answer = 0.0, []
        open_ends = {ours, process.stdout.fileno()}
        while open_ends:
            for end in select.select(open_ends, [], [])[0]:
                try:
                    data = os.read(end, 1 << 16)
                except OSError:  # how a terminal says that nobody writes to it any more
                    data = b""
                if end == process.stdout.fileno():
                    answer.append(data)
                else:
                    now = time.monotonic()
                    self.silence, last = max(self.silence, now - last), now
                if not data:
                    open_ends.remove(end)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
        os.close(ours)
        self.wall, self.cpu = time.monotonic() - begin, usage.ru_utime + usage.ru_stime
        self.mebibytes = usage.ru_maxrss / 1024
        self.result = json.loads(b"".join(answer)) if process.returncode == 0 else None


def main():
    pipewright, *names = sys.argv[1:]
    print("%-23s %6s %8s %14s %10s %8s %8s %9s %9s" % ("model", "GPUs", "batch", "configurations", "simulated", "wall s",
                                                        "CPU s", "MiB", "silent s"))
    for name, document in jobs():
        devices = document["cluster"]["devices"]
        if names and not any(word in name for word in names):
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "job.json")
            with open(path, "w") as file:
                json.dump(document, file)
            run = Measured(pipewright, path, os.path.join(folder, "plan.json"))
        if run.result is None:
            sys.exit(f"pipewright tune fails for {name} on {devices} GPUs")
        print("%-23s %6d %8d %14d %10d %8.2f %8.2f %9.0f %9.2f" % (
            name, devices, document["global_batch"], run.result["configurations"], run.result["evaluated"], run.wall,
            run.cpu, run.mebibytes, run.silence), flush=True)


main()
