"""The build that is looked at: one made elsewhere, packed or in its folder, or made here; and packing one."""
import json
import os
import shutil
import subprocess
import tarfile

from gpu_check import machine
from gpu_check.machine import Failed

PROGRAMS = ('pipewright', 'libpipewright_cuda.so', 'tests/gpu/gpu_kernels', 'tests/gpu/gpu_training',
            'tests/gpu/gpu_graphs', 'tests/gpu/gpu_nccl', 'tests/bench/bench_gpu_rates')
STAND_IN, STAND_IN_PACKED = 'tests/gpu/stand_in/libpipewright_cuda.so', 'stand_in/libpipewright_cuda.so'
# What the other machine may lack; CUDA's own libraries and the C++ runtime are its own.
CARRIED_LIBRARIES = ('libz.so', 'libcrypto.so', 'libcudart.so')
MOST_PACK_BYTES = 48 << 20  # with the sources below the 64 MiB that are carried

UNPACK_S, DEPS_S, CONFIGURE_S, COMPILE_S, DOCTOR_S = 15, 20, 45, 420, 20


def is_compiled(build):
    return all(os.path.isfile(os.path.join(build, one)) for one in PROGRAMS)


def limits(is_elsewhere, compiled):
    """Seconds that a command may need before its first step, by name."""
    if is_elsewhere:
        return [('unpack', UNPACK_S), ('doctor', DOCTOR_S)]
    if compiled:
        return [('doctor', DOCTOR_S)]
    return [('dependencies', DEPS_S), ('configure', CONFIGURE_S), ('compile', COMPILE_S), ('doctor', DOCTOR_S)]


def unpack(build, folder):
    """The folder of a build that was made elsewhere; `folder` is for one that is packed. ValueError: it is none."""
    if os.path.isdir(build):
        found = os.path.abspath(build)
    else:
        found = os.path.join(folder, 'build')
        try:
            with tarfile.open(build) as opened:
                opened.extractall(found)
        except (OSError, tarfile.TarError, EOFError) as error:
            raise ValueError(f'--build {build}: {error}') from error
    if not os.path.isfile(os.path.join(found, 'pipewright')):
        raise ValueError(f'--build {build}: no pipewright in it')
    return found


def for_rehearsal(build, folder):
    """A copy of the build with the stand-in for the CUDA module beside the command."""
    places = (STAND_IN, STAND_IN_PACKED)
    stand_in = next((p for p in (os.path.join(build, place) for place in places) if os.path.isfile(p)), None)
    if stand_in is None:
        raise ValueError(f'--rehearse: {build} has no {STAND_IN}; build the target gpu_stand_in')
    rehearsal = os.path.join(folder, 'rehearsal')
    os.makedirs(rehearsal)
    for program in PROGRAMS:
        for found in (os.path.join(build, program), os.path.join(build, os.path.basename(program))):
            if os.path.isfile(found) and not program.endswith('.so'):
                shutil.copy(found, rehearsal)
                break
    shutil.copy(stand_in, rehearsal)
    return rehearsal


def compile_here(source, build, deps, runner, log):
    """build/gpu, for this GPU alone."""
    prefix = os.path.join(build, 'deps')
    for package in sorted(os.listdir(deps)) if deps else []:
        if package.endswith('.deb'):
            runner.run(['dpkg-deb', '--extract', os.path.join(deps, package), prefix], log)
    library, include = f'{prefix}/usr/lib/x86_64-linux-gnu', f'{prefix}/usr/include'
    boost = include if os.path.isdir(f'{include}/boost') else '/usr/include'
    capability = (machine.ask_nvidia_smi('compute_cap') or '9.0').replace('.', '')
    runner.run(['cmake', '-S', source, '-B', build, *(['-GNinja'] if shutil.which('ninja') else []),
                '-DCMAKE_BUILD_TYPE=Release', '-DPIPEWRIGHT_CUDA=ON', '-DPIPEWRIGHT_MPI=OFF',
                '-DPIPEWRIGHT_INSTALL=OFF', f'-DCMAKE_CUDA_ARCHITECTURES={capability}',
                f'-DCMAKE_PREFIX_PATH={prefix}/usr', f'-DBoost_INCLUDE_DIR={boost}',
                f'-DCMAKE_LIBRARY_PATH={library};{library}/openblas-serial'], log)
    runner.run(['cmake', '--build', build, '--parallel', str(os.cpu_count()), '--target', 'pipewright',
                'pipewright_cuda', *(os.path.basename(p) for p in PROGRAMS[2:])], log)


def doctor(build, runner, log, out):
    """What `pipewright doctor` says. Failed: it runs nothing on a GPU, and why."""
    runner.run([os.path.join(build, 'pipewright'), 'doctor', '--json'], log, out)
    with open(out, encoding='utf-8') as file:
        found = json.load(file)
    if found['gpu']['why_no_gpu']:
        raise Failed(f'doctor: {found["gpu"]["why_no_gpu"]}')
    return found


# --- Packing ---

def commit_of(source):
    command = ['git', '-C', source, 'describe', '--always', '--dirty', '--abbrev=10']
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip() or 'unknown'
    except OSError:
        return 'unknown'


def _libraries(program):
    """Those of CARRIED_LIBRARIES that it loads, as files."""
    listed = subprocess.run(['ldd', program], capture_output=True, text=True).stdout
    for line in listed.splitlines():
        name, _, place = line.strip().partition(' => ')
        place = place.split(' (')[0]
        if name.startswith(CARRIED_LIBRARIES) and os.path.isfile(place):
            yield name, os.path.realpath(place)


def pack(source, build, file, folder):
    """All of PROGRAMS, stripped, flat in one archive. Returns its bytes; ValueError: one is missing, or too much."""
    missing = [one for one in PROGRAMS if not os.path.isfile(os.path.join(build, one))]
    if missing:
        raise ValueError(f'--pack: {build} has no {", ".join(missing)}; build them (docs/gpu.md)')
    names = {os.path.basename(one): os.path.join(build, one) for one in PROGRAMS}
    if os.path.isfile(os.path.join(build, STAND_IN)):
        names[STAND_IN_PACKED] = os.path.join(build, STAND_IN)
    for place in list(names.values()):
        names.update((f'lib/{name}', found) for name, found in _libraries(place))
    with open(os.path.join(folder, 'built.json'), 'w', encoding='utf-8') as made:
        json.dump({'commit': commit_of(source)}, made)
    with tarfile.open(file + '.new', 'w:gz') as archive:
        archive.add(made.name, 'built.json')
        for name, place in sorted(names.items()):
            slim = os.path.join(folder, name)
            os.makedirs(os.path.dirname(slim), exist_ok=True)
            shutil.copy(place, slim)
            subprocess.run(['strip', '--strip-unneeded', slim], check=True)
            archive.add(slim, name)
    size = os.path.getsize(file + '.new')
    if size > MOST_PACK_BYTES:
        raise ValueError(f'--pack: {size} bytes are more than the {MOST_PACK_BYTES} that are carried')
    os.replace(file + '.new', file)
    return size


def commit_of_build(build, source):
    try:
        with open(os.path.join(build, 'built.json'), encoding='utf-8') as file:
            return json.load(file)['commit']
    except (OSError, ValueError, KeyError):
        return commit_of(source)
