"""Looks at a CUDA module where there is no GPU: that everything it needs of CUDA, cuBLAS and NCCL is found when it is
loaded, and what the compiler made of the kernels.
    module.py MODULE TOOLCHAIN   (the folder of scripts/cuda-toolchain)"""
import collections
import ctypes
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Arrays that kernels read, and write, in packs: of elements (exec/devices/cuda/elements.hpp, llama_elements.hpp,
# expert_elements.hpp, latent_elements.hpp), of long rows (rows.hpp, channel_elements.hpp), and of columns
# (columns.hpp).
ARRAYS = {'Map': (1, 1), 'Map2': (2, 1), 'BiasForward': (1, 1), 'CrossEntropyBackwardInput': (1, 1),
          'ScaleBy': (1, 1), 'SgdUpdate': (2, 1), 'AdamwUpdate': (4, 3), 'ArrayTerm': (1, 0), 'RmsNormTerm': (2, 0),
          'LayerNormTerm': (2, 0),
          'LayerNormForward': (3, 1), 'LayerNormBackwardInput': (3, 1), 'CausalSoftmaxForward': (1, 1),
          'CausalSoftmaxBackwardInput': (2, 1), 'CrossEntropyForward': (1, 1), 'MseForward': (2, 0),
          'SwigluForward': (2, 1), 'SwigluBackwardInput': (3, 2), 'Rotate': (4, 2), 'RmsNormForward': (2, 1),
          'RmsNormBackwardInput': (3, 1), 'JudgeRow': (1, 0), 'TellLogits': (1, 0), 'AddExponentials': (1, 1),
          'FinishCrossEntropy': (1, 1), 'CopyColumns': (1, 1), 'RingRowsForward': (2, 2), 'FinishRing': (1, 1),
          'ProductsOfRows': (2, 0), 'RingRowsBackward': (2, 2), 'GatherRows': (1, 1), 'WeighRows': (1, 1),
          'WeighRowsBackward': (2, 1), 'PlaneSums': (1, 0), 'PlaneSquares': (1, 0), 'PlaneGradients': (2, 0),
          'GlobalAverageForward': (1, 0), 'RotateNeighbours': (1, 1), 'JoinKeys': (1, 1),
          'AddHeads': (2, 1)}


def check(holds, what):
    print(f'{"ok" if holds else "WRONG"}: {what}')
    return holds


def loads(module):
    """All symbols are resolved, and the table is of this source."""
    library = ctypes.CDLL(module, mode=os.RTLD_NOW)
    library.pipewright_cuda_entry.restype = ctypes.POINTER(ctypes.c_int)
    with open(os.path.join(ROOT, 'exec/devices/cuda/module_api.h'), encoding='utf-8') as file:
        wanted = int(re.search(r'define PIPEWRIGHT_CUDA_ABI (\d+)', file.read()).group(1))
    found = library.pipewright_cuda_entry().contents.value
    with open(module, 'rb') as file:
        content = file.read()
    return (check(found == wanted, f'it loads; its table is {found}, of {wanted}') &
            check(b'libcudnn.so.9' in content, 'it has attention by cuDNN') &
            check(b'NVTX_INJECTION64_PATH' in content, 'it has ranges by NVTX') &
            check(b'libcupti.so.' in content, 'it has a record of kernels by CUPTI') &
            check(hasattr(library, 'pipewright_nccl_entry'), 'it has a table of NCCL'))


def instructions(module, toolchain):
    """(capability, kernel) with its loads and stores of 16 bytes, and those of registers that had no room."""
    dump = subprocess.run([os.path.join(toolchain, 'bin/cuobjdump'), '-sass', module], check=True,
                          capture_output=True, text=True,
                          env={**os.environ, 'PATH': f'{toolchain}/bin:{os.environ["PATH"]}'}).stdout
    dump = subprocess.run(['c++filt'], check=True, capture_output=True, text=True, input=dump).stdout
    found, capability, kernel = collections.defaultdict(collections.Counter), '', ''
    for line in dump.splitlines():
        if match := re.search(r'arch = sm_(\d+)', line):
            capability = match.group(1)
        elif match := re.search(r'Function : (.*)', line):
            kernel = match.group(1)
            found[capability, kernel].update()
        elif match := re.search(r'\b(LDG|STG)\.E\S*\.128\b', line):
            found[capability, kernel][match.group(1)] += 1
        elif re.search(r'\b(LDL|STL)\b', line):
            found[capability, kernel]['spills'] += 1
    return found


def widths(found):
    """Held rows (held_rows.hpp) have so many packs a thread, of 8 numbers, all in registers."""
    good, seen = True, collections.Counter()
    for (capability, kernel), count in found.items():
        match = re.search(r'(?:(?:pack|wide_row|column)_kernel<|held_row_kernel<(\d), )'
                          r'(?:pipewright::exec::cuda::ColumnTiles<)?pipewright::exec::cuda::(\w+)', kernel)
        if match is None:
            continue
        packs = int(match.group(1) or 1)
        reads, writes = (packs * arrays for arrays in ARRAYS[match.group(2)])
        seen[capability] += 1
        if count['LDG'] < reads or count['STG'] < writes:
            good = check(False, f'sm_{capability} {kernel}: {count["LDG"]} loads and {count["STG"]} stores of 16 '
                                f'bytes, of {reads} and {writes}')
        if match.group(1) and count['spills'] > 0:
            good = check(False, f'sm_{capability} {kernel}: {count["spills"]} loads and stores of registers')
    for capability, kernels in seen.items():
        print(f'sm_{capability}: {kernels} kernels whose arrays are read and written 16 bytes at once')
    return check(bool(seen), 'there are such kernels, and rows that they hold stay in registers') and good


def main(module, toolchain):
    results = [loads(os.path.abspath(module)), widths(instructions(module, toolchain))]
    return 0 if all(results) else 1


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
