"""Makes the wheel of what a folder has built, installs it to a fresh environment and uses it there.

usage: wheel.py SOURCE BUILT FOLDER, by the Python for which the module was built. FOLDER is emptied first. Exit status 77
(skipped) where that Python lacks what builds a wheel.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import venv

SKIPPED = 77


def run(*command, **options):
    """stdout of a command that has to succeed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command} exits with {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def make_wheel(source, built, folder):
    run(
        *(sys.executable, "-m", "pip", "wheel", source, "--no-deps", "--no-index", "--no-build-isolation", "-w", folder),
        *("-C", "cmake.source-dir=tests/package/wheel", "-C", f"cmake.define.PIPEWRIGHT_BUILT={built}"),
    )
    (wheel,) = folder.glob("pipewright-*.whl")
    return wheel


def install(wheel, folder):
    """The environment's bin. NumPy, which the package asks for, is that of the Python that runs this."""
    venv.create(folder, with_pip=False)
    run(sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "--no-deps", "--no-index", wheel)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "numpy.pth").write_text(sysconfig.get_path("platlib"))
    return folder / "bin"


def main():
    source, built, folder = map(pathlib.Path, sys.argv[1:])
    try:
        import nanobind  # noqa: F401
        import scikit_build_core  # noqa: F401

        import scipy_openblas32
    except ImportError as error:
        print(f"skipped: {sys.executable} cannot build a wheel ({error})")
        return SKIPPED

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    commands = install(make_wheel(source, built, folder), folder / "environment")
    elsewhere = {"cwd": folder, "env": {"PATH": f"{commands}:/usr/bin:/bin"}}

    assert run("pipewright", "--version", **elsewhere).startswith("pipewright ")
    facts = json.loads(run("pipewright", "doctor", "--json", **elsewhere))
    version = " ".join(scipy_openblas32.get_openblas_config().split()[:2])
    assert facts["blas"].startswith(version), (facts["blas"], version)

    # It trains with that OpenBLAS, on the documents that came along.
    documents = commands.parent / "share/doc/pipewright"
    plan, text = documents / "examples/plan.json", documents / "tutorial.md"
    run("pipewright", "run", plan, "--data", text, "--steps", "2", "--verify", **elsewhere)
    assert (commands.parent / "share/man/man1/pipewright.1").exists()

    elsewhere["env"]["PIPEWRIGHT_COMMAND"] = str(commands / "pipewright")
    tests = source / "tests/python/run_tests.py"
    print(run("python", tests, "arrays", "errors", **elsewhere))
    print(run("python", "-c", "import pipewright; print(pipewright.__file__)", **elsewhere))
    return 0


if __name__ == "__main__":
    sys.exit(main())
