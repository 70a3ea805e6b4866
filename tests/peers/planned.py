"""Plans of jobs in which every degree has a value, the ranks of their groups, and what is exported of them."""

import itertools
import json
import os
import subprocess

SKIPPED = 77


def why_no_deepspeed():
    """A sentence where the DeepSpeed that the export is for is not here, on CPUs; else None."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    try:
        import deepspeed
    except ImportError as error:
        return f"DeepSpeed is not installed here ({error})"
    if not deepspeed.__version__.startswith("0.19."):
        return f"this is DeepSpeed {deepspeed.__version__}, and the file is of 0.19"
    return None


def job(model, devices, batch, **strategy):
    return {
        "schema": "pipewright.job/1",
        "model": {"schema": "pipewright.architecture/1", "preset": model},
        "cluster": {"preset": "dgx-h100", "devices": devices},
        "global_batch": batch,
        "strategy": {"micro_batch_size": 1, "schedule_mode": "1F1B", "sharding_stage": 1, **strategy},
    }


JOBS = {
    "all four": job("llama3-8b", 16, 32, mp_degree=2, cp_degree=2, pp_degree=2),
    "pipeline outermost": job("llama3-8b", 16, 32, mp_degree=2, pp_degree=2, rank_order="tp-cp-dp-pp"),
    "replicas outermost": job("llama3-8b", 16, 32, mp_degree=2, pp_degree=2, rank_order="tp-cp-pp-dp"),
    "interleaved": job("llama3-8b", 16, 64, pp_degree=4, vpp_degree=2, schedule_mode="Interleaved1F1B"),
    "ZeRO 3": job("llama3-8b", 16, 32, mp_degree=1, pp_degree=1, sharding_stage=3),
    "rows too": job("llama3-8b", 8, 32, mp_degree=4, pp_degree=2, use_sequence_parallel=True),
    "experts": job("mixtral-8x7b", 32, 64, pp_degree=4, ep_degree=4),
    "experts and contexts": job("mixtral-8x7b", 32, 64, pp_degree=2, cp_degree=2, ep_degree=8),
    "whole experts": job(
        *("mixtral-8x7b", 32, 64), pp_degree=2, mp_degree=2, ep_degree=4, expert_tensor_parallel_size=1, use_sequence_parallel=True
    ),
    "divided experts": job("mixtral-8x7b", 32, 64, pp_degree=2, mp_degree=2, ep_degree=4),
}


def plans(command, folder, jobs=JOBS):
    """(name, file, plan) of each job's winner."""
    for name, asked in jobs.items():
        path = os.path.join(folder, name.replace(" ", "-"))
        with open(path + ".job.json", "w") as file:
            json.dump(asked, file)
        subprocess.run([command, "tune", path + ".job.json", "-o", path + ".json", "-q"], check=True, stdout=subprocess.DEVNULL)
        with open(path + ".json") as file:
            yield name, path + ".json", json.load(file)


def groups_of(plan):
    """The ranks of each group, as docs/plan-format.md has them: {"tp": {(0, 1), ...}, ...}. "ep", "edp" and "expert tp" are
    those that divide the experts, those that have the same ones and those that divide each."""
    mesh = plan["mesh"]
    sizes = dict(zip(mesh["dim_names"], mesh["shape"]))
    places = [dict(zip(sizes, place)) for place in itertools.product(*map(range, sizes.values()))]

    def along(*axes):
        groups = {}
        for rank, place in enumerate(places):
            others = tuple(at for axis, at in place.items() if axis not in axes)
            groups.setdefault(others, []).append((tuple(place.get(axis, 0) for axis in axes), rank))
        return [tuple(rank for _, rank in sorted(group)) for group in groups.values()]

    found = {axis: set(along(axis)) for axis in ("tp", "cp", "dp", "pp")}
    found["dp-cp"] = set(along("dp", "cp"))
    whole = plan.get("expert_tensor_parallel", 0) == 1
    dealt, experts = along("dp", "cp", *(["tp"] if whole else [])), plan.get("expert_parallel", 1)
    found["ep"] = {group[at : at + experts] for group in dealt for at in range(0, len(group), experts)}
    found["edp"] = {group[at::experts] for group in dealt for at in range(experts)}
    found["expert tp"] = {(rank,) for rank in range(len(places))} if whole else found["tp"]
    return {name: {tuple(sorted(group)) for group in groups} for name, groups in found.items()}


def exported(command, path, format):
    """The text of the file and the notes; (None, why) where the plan is refused."""
    words = [command, "export", path, "--format", format, "--json", "-q"]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    fields = json.loads(done.stdout)["export"]
    return (None, fields["refusals"]) if fields["verdict"] != "ok" else (fields["contents"], fields["notes"])


def words_of(text, *arrays):
    """The words of arrays in a file to be sourced, as bash has them."""
    script = text + "".join(f'printf "%s\\n" "${{{name}[@]}}"\n' for name in arrays)
    return subprocess.run(["bash", "-euc", script], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


def differences(expected, found):
    """Words for the first thing that differs, or None."""
    for name, value in expected.items():
        if found[name] != value:
            return f"{name} is {found[name]}, and in the plan {value}"
    return None
