#include "tools/cli/complaint.hpp"

#include <new>
#include <system_error>

#include "core/base/error.hpp"
#include "exec/runtime/runtime.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/interrupt.hpp"

namespace pipewright::tools {

Complaint complaint_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const InputError& error) {
    return {kBadInput, error.what()};
  } catch (const MachineError& error) {
    return {kMachineCannot, error.what()};
  } catch (const Interrupted&) {
    return {kInterrupted, "interrupted"};
  } catch (const std::bad_alloc&) {
    return {kMachineCannot, "not enough memory for this; use fewer ranks or micro-batches"};
  } catch (const std::system_error& error) {
    const bool no_thread = error.code() == std::errc::resource_unavailable_try_again;
    return {kMachineCannot,
            no_thread ? "no further thread can be started here; raise the limits of processes and "
                        "memory (ulimit -u, ulimit -v), or use fewer ranks or --threads"
                      : std::string("the system refused: ") + error.what()};
  } catch (const exec::RunFailed& failed) {
    const bool diverged = failed.result().outcome == exec::Outcome::Diverged;
    return {diverged ? kDiverged : kRunFailed, failed.what()};
  } catch (const std::exception& error) {
    return {kRunFailed, error.what()};
  }
}

}  // namespace pipewright::tools
