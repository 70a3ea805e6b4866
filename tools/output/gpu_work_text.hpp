// What the GPUs did in the step that is shown, kernel by kernel, as figures; the pieces themselves
// stand in its trace.
#pragma once

#include <string>

#include "core/base/json.hpp"
#include "core/timeline/gpu_work.hpp"

namespace pipewright::tools {

/// "412 kernels, 16 copies and 3 clearings on GPUs; …": how much of the computations' time they
/// make up, how far they lie outside of these, and what is missing.
std::string gpu_work_text(const Program& program, const Timeline& timeline, const GpuWorkLog& log);

/// The same of --json, as "gpu_work".
Json gpu_work_fields(const Program& program, const Timeline& timeline, const GpuWorkLog& log);

}  // namespace pipewright::tools
