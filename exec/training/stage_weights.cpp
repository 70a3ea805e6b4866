#include "exec/training/stage_weights.hpp"

#include "core/base/error.hpp"

namespace pipewright::exec {

namespace {

[[noreturn]] void refuse_divided() {
  throw Bug("divided gradients or weights on a device that has none");
}

}  // namespace

bool SharedOutWeights::has_whole_gradients() const { refuse_divided(); }
void SharedOutWeights::make_whole_gradients() { refuse_divided(); }
GradientPart SharedOutWeights::hand_over_whole_gradients() { refuse_divided(); }
void SharedOutWeights::add(std::size_t, const Summands&) { refuse_divided(); }
void SharedOutWeights::make_whole_weights() { refuse_divided(); }
void SharedOutWeights::drop_whole_weights() { refuse_divided(); }

void StageWeights::forget_training() { throw Bug("a forward-only stage on a device that trains"); }

}  // namespace pipewright::exec
