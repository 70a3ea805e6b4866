// The `pipewright` command.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

#include "tools/cli/application.hpp"
#include "tools/cli/interrupt.hpp"

namespace {

/// A descriptor that the caller closed would be given to the next file we open, which would then
/// receive our output. Opened for reading, it makes writes fail as they should.
void hold_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) != -1) continue;
    if (open("/dev/null", O_RDONLY) != descriptor) _exit(3);
  }
}

}  // namespace

int main(int argc, char** argv) {
  hold_standard_descriptors();
  // A rank is one thread. Otherwise OpenBLAS starts one for each core where it is loaded, with 128
  // MiB for each, and waits for ever if it does not get that memory.
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  pipewright::tools::install_signal_handlers();
  return pipewright::tools::run_application({argv + (argc > 0 ? 1 : 0), argv + argc});
}
