#include "tools/output/gpu_work_text.hpp"

#include <algorithm>

#include "core/base/units.hpp"
#include "tools/cli/figures.hpp"
#include "tools/cli/table.hpp"

namespace pipewright::tools {
namespace {

std::int64_t count(const GpuWorkLog& log, GpuWork::Kind kind) {
  return std::count_if(log.work.begin(), log.work.end(),
                       [&](const GpuWork& piece) { return piece.kind == kind; });
}

}  // namespace

std::string gpu_work_text(const Program& program, const Timeline& timeline, const GpuWorkLog& log) {
  const auto number = [&](GpuWork::Kind kind) { return std::to_string(count(log, kind)); };
  std::string text = number(GpuWork::Kind::Kernel) + " kernels, " + number(GpuWork::Kind::Copy) +
                     " copies and " + number(GpuWork::Kind::Clear) +
                     " clearings on GPUs; computations were at work " +
                     percent_text(share_at_work(program, timeline, log)) +
                     " of their time; by the two clocks no piece lies more than " +
                     format_duration(Nanoseconds(log.apart_ns)) + " outside of its computation";
  if (log.strays > 0)
    text += "; " + std::to_string(log.strays) + " pieces are of no rank that is known";
  if (log.dropped > 0)
    text += "; " + std::to_string(log.dropped) + " pieces are missing: there was no room for them";
  return text;
}

Json gpu_work_fields(const Program& program, const Timeline& timeline, const GpuWorkLog& log) {
  return {{"kernels", count(log, GpuWork::Kind::Kernel)},
          {"copies", count(log, GpuWork::Kind::Copy)},
          {"clears", count(log, GpuWork::Kind::Clear)},
          {"share_at_work", share_at_work(program, timeline, log)},
          {"apart_ns", log.apart_ns},
          {"strays", log.strays},
          {"dropped", log.dropped}};
}

}  // namespace pipewright::tools
