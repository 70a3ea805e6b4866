#include "exec/devices/cuda/gradient_copies.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/error.hpp"

namespace pipewright::exec::cuda {
namespace {

/// Of another rank's copy so many floats come at a time: it may be on another GPU.
constexpr std::size_t kFloatsAtOnce = std::size_t{1} << 22;

class CopyOnDevice final : public Part {
 public:
  CopyOnDevice(const Buffer& what, Event when) : copy(what), ready(std::move(when)) {}
  HostPayload pack() const override {
    PIPEWRIGHT_ASSERT(false, "a copy that lies on a GPU is not packed");
    return HostPayload({});
  }

  Buffer copy;
  Event ready;
};

}  // namespace

bool adds_copies(const Program& program, const Instruction& sum, RankId rank, Precision precision) {
  if (precision == Precision::Exact) return false;
  if (sum.in_collective() && program.collectives[sum.route].sharded) return false;
  const auto code = program.rank_code(rank);
  return std::count_if(code.begin(), code.end(), [&](const Instruction& in) {
           return in.kind == sum.kind && in.stage == sum.stage;
         }) == 1;
}

PartPtr GradientCopies::bring(const float* from, std::size_t floats) {
  if (!copy_) copy_ = queue_.weights().take_floats(floats);
  queue_.copy(copy_.at(), from, floats * sizeof(float));
  return std::make_shared<CopyOnDevice>(copy_, queue_.record(queue_.computing()));
}

bool GradientCopies::add_up(const std::vector<PartPtr>& parts, float* to, std::size_t floats) {
  std::vector<const CopyOnDevice*> copies;
  for (const PartPtr& part : parts) {
    copies.push_back(dynamic_cast<const CopyOnDevice*>(part.get()));
    if (copies.back() == nullptr) return false;
    queue_.wait(queue_.computing(), copies.back()->ready);
  }
  if (!arrived_) arrived_ = queue_.weights().take_floats(std::min(floats, kFloatsAtOnce));
  for (std::size_t begin = 0; begin < floats; begin += kFloatsAtOnce) {
    const std::size_t n = std::min(floats - begin, kFloatsAtOnce);
    for (const CopyOnDevice* one : copies) {
      const bool is_first = one == copies.front();
      float* const at = is_first ? to + begin : arrived_.floats();
      queue_.copy(at, one->copy.floats() + begin, n * sizeof(float));
      if (!is_first) queue_.run(queue_.cuda().kernels.add_to, n, at, to + begin);
    }
  }
  return true;
}

}  // namespace pipewright::exec::cuda
