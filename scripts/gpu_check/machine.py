"""The machine that is looked at: its GPU, its libraries, and commands that end when their time is up."""
import ctypes
import glob
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time

# TFLOP/s of dense products by NVIDIA's data sheets of A100, H100 and H200; where a sheet names the rate with
# sparsity, half of it. By the name that nvidia-smi gives; the first that fits.
PEAKS = (
    ('H200', {'fp32': 67, 'tf32': 494.5, 'bf16': 989}),
    ('H100 PCIe', {'fp32': 51, 'tf32': 378, 'bf16': 756}),
    ('H100', {'fp32': 67, 'tf32': 494.5, 'bf16': 989}),
    ('A100', {'fp32': 19.5, 'tf32': 156, 'bf16': 312}),
)


class NotTaken(Exception):
    """What a step needs is not here; the sentence says what."""


class Failed(Exception):
    """A step's command failed, or said something that must not be."""


class OutOfTime(Exception):
    """The step's limit was reached; what ran is ended."""


def peak_tflops(device, precision):
    """None: no data sheet is known."""
    return next((peaks[precision] for name, peaks in PEAKS if name in device), None)


def ask_nvidia_smi(*fields):
    """Their values of GPU 0 as text; None: there is none."""
    try:
        found = subprocess.run(['nvidia-smi', f'--query-gpu={",".join(fields)}', '--format=csv,noheader', '--id=0'],
                               capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    line = found.stdout.strip().splitlines()
    return line[0] if found.returncode == 0 and line else None


def library_folders(build):
    """Where CUDA, cuBLAS and NCCL may lie: the toolkit, Python's packages, and what was packed with the build."""
    packages = {sysconfig.get_paths()['purelib']}
    other = shutil.which('python3')
    if other and os.path.realpath(other) != os.path.realpath(sys.executable):
        packages.add(subprocess.run([other, '-c', 'import sysconfig; print(sysconfig.get_paths()["purelib"])'],
                                    capture_output=True, text=True).stdout.strip())
    places = glob.glob('/usr/local/cuda*/lib64') + glob.glob('/usr/local/cuda*/targets/x86_64-linux/lib')
    for one in sorted(packages - {''}):
        places += sorted(glob.glob(os.path.join(one, 'nvidia', '*', 'lib')))
    prefix = os.path.join(build, 'deps', 'usr', 'lib', 'x86_64-linux-gnu')
    return [place for place in (*places, prefix, os.path.join(build, 'lib')) if os.path.isdir(place)]


def environment(build):
    folders = library_folders(build) + [p for p in os.environ.get('LD_LIBRARY_PATH', '').split(':') if p]
    path = os.environ.get('PATH', '') + ':/usr/local/cuda/bin'
    return {**os.environ, 'LD_LIBRARY_PATH': ':'.join(folders), 'PATH': path, 'NCCL_RAS_ENABLE': '0',
            'NO_COLOR': '1', 'COLUMNS': '120'}


def _die_with_parent():
    """In the child: a process group of its own, that its limit ends whole, and no life after the script's."""
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Runner:
    """Runs commands until a moment of time.monotonic(); what they print goes to files."""

    def __init__(self, build, deadline):
        self.build, self.deadline = build, deadline
        self.environment = environment(build)

    def left_s(self):
        return self.deadline - time.monotonic()

    def status(self, command, log, out=None):
        """Its exit status. Standard output goes to `out` if that is given, all else to the end of `log`."""
        if self.left_s() <= 0:
            raise OutOfTime()
        with open(log, 'ab') as log_file, open(out or os.devnull, 'wb') as out_file:
            log_file.write(f'$ {" ".join(command)}\n'.encode())
            log_file.flush()
            try:
                child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out_file if out else log_file,
                                         stderr=log_file, env=self.environment, preexec_fn=_die_with_parent)
            except OSError as error:
                raise NotTaken(f'{os.path.basename(command[0])}: {error.strerror}') from error
            try:
                return child.wait(timeout=max(0.001, self.left_s()))
            except subprocess.TimeoutExpired:
                raise OutOfTime() from None
            finally:
                _end(child)

    def run(self, command, log, out=None):
        """The same of a command that has to succeed."""
        status = self.status(command, log, out)
        if status != 0:
            raise Failed(f'{os.path.basename(command[0])} {" ".join(command[1:3])}: exit status {status}: '
                         f'{last_words(log)}')


def _end(child):
    """It and all that it started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def last_words(log):
    with open(log, encoding='utf-8', errors='replace') as file:
        lines = [line.strip() for line in file if line.strip()]
    return lines[-1][:160] if lines else ''
