#include "exec/devices/cuda/clipping.hpp"

#include <algorithm>
#include <memory>

#include "core/base/error.hpp"
#include "exec/devices/cuda/payload.hpp"

namespace pipewright::exec::cuda {
namespace {

constexpr std::size_t kWordsOfSum = 4, kBytesOfSum = kWordsOfSum * sizeof(std::int64_t);

/// A rank's sum, where it lies.
class SquaresOnDevice final : public Part {
 public:
  SquaresOnDevice(Buffer what, Event when) : words(std::move(what)), ready(std::move(when)) {}
  HostPayload pack() const override {
    PIPEWRIGHT_ASSERT(false, "a sum that lies on a GPU is not packed");
    return HostPayload({});
  }

  Buffer words;
  Event ready;
};

}  // namespace

Clipping::Clipping(Queue& queue, int ranks, double most)
    : queue_(queue),
      most_(most),
      own_(queue.weights().take(kBytesOfSum)),
      gathered_(queue.weights().take(kBytesOfSum * static_cast<std::size_t>(ranks))),
      factor_(queue.weights().take_floats(1)),
      number_(queue.weights().take(sizeof(double))) {}

PartPtr Clipping::squares(std::span<StageGradients* const> counted) {
  queue_.clear(own_.at(), kBytesOfSum);
  for (const auto& [stage, parameters] : stages_) {
    if (std::find(counted.begin(), counted.end(), stage) == counted.end()) continue;
    stage->settle_gradients();
    parameters->add_squares(own_.longs());
  }
  if (!transport_sums_)
    return std::make_shared<SquaresOnDevice>(own_, queue_.record(queue_.computing()));
  queue_.run(queue_.kernels().squares_as_number, own_.longs(), static_cast<double*>(number_.at()));
  return std::make_shared<DevicePart>(ArrayOfGroup{number_.at(), 1},
                                      queue_.record(queue_.computing()));
}

void Clipping::clip(const std::vector<PartPtr>& parts) {
  transport_sums_ ? take_factor(parts.front()) : make_factor(parts);
  for (const auto& [stage, parameters] : stages_) {
    stage->settle_gradients();
    parameters->scale_by(factor_.floats());
  }
}

void Clipping::take_factor(const PartPtr& sum) {
  const auto* part = dynamic_cast<const DevicePart*>(sum.get());
  if (part == nullptr) throw RunError("received what is no sum of squared gradients");
  queue_.wait(queue_.computing(), part->ready);
  queue_.run(queue_.kernels().clip_factor_of_number, static_cast<const double*>(number_.at()),
             most_, factor_.floats());
}

/// A sum that is too large for its range sets the first stage's flag, and the run ends.
void Clipping::make_factor(const std::vector<PartPtr>& parts) {
  std::size_t count = 0;
  for (const PartPtr& part : parts) {
    const auto* sum = dynamic_cast<const SquaresOnDevice*>(part.get());
    if (sum == nullptr) throw RunError("received what is no sum of a rank's squared gradients");
    queue_.wait(queue_.computing(), sum->ready);
    queue_.copy(gathered_.longs() + kWordsOfSum * count++, sum->words.at(), kBytesOfSum);
  }
  queue_.run(queue_.kernels().clip_factor, static_cast<int>(count), gathered_.longs(), most_,
             factor_.floats(), stages_.front().second->norm_flag());
}

}  // namespace pipewright::exec::cuda
