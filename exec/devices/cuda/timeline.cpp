#include "exec/devices/cuda/timeline.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "exec/base/waiting.hpp"

namespace pipewright::exec::cuda {
namespace {

constexpr int kBaseTries = 5;

}  // namespace

void TransferSpans::write(Timeline& timeline) const {
  const std::scoped_lock lock(mutex);
  for (std::size_t id = 0; id < end.size(); ++id) {
    if (end[id] == kNotEnded) continue;
    timeline.start[id] = timeline.moving[id] = moving[id];
    timeline.end[id] = end[id];
  }
}

void DeviceTimeline::begin_step(bool is_replayed) {
  if (!is_replayed) {
    computations_.clear();
    transfers_.clear();
  }
  std::int64_t narrowest = 0;
  for (int i = 0; i < kBaseTries; ++i) {
    const std::int64_t before = local::steady_ns();
    Event event = mark(queue_.computing());
    require(queue_.cuda(), queue_.cuda().wait_for_event(event.get()));
    const std::int64_t width = local::steady_ns() - before;
    if (base_ != nullptr && i > 0 && width >= narrowest) continue;
    narrowest = width;
    base_ = std::move(event);
    base_ns_ = before + width / 2;
  }
}

void DeviceTimeline::note_computation(InstructionId id, Event start, Event end) {
  computations_.push_back({id, std::move(start), std::move(end)});
}

void DeviceTimeline::note_transfer(InstructionId end, Event start, Event over, bool also_partner) {
  transfers_.push_back({end, std::move(start), std::move(over), 0, 0, also_partner});
}

void DeviceTimeline::read(Span& span) const {
  const auto at = [&](const Event& event) {
    float ms = 0;
    require(queue_.cuda(), queue_.cuda().elapsed_ms(base_.get(), event.get(), &ms));
    const auto since_base = static_cast<std::int64_t>(std::llround(static_cast<double>(ms) * 1e6));
    return std::max<std::int64_t>(0, base_ns_ + to_step_ns_ + since_base);
  };
  span.from = at(span.start);
  span.to = at(span.end);
}

void DeviceTimeline::finish_transfers(const std::function<void()>& between) const {
  for (const Span& span : transfers_) queue_.finish(span.end, between);
}

void DeviceTimeline::end_step() {
  to_step_ns_ = clock_.now() - local::steady_ns();
  for (Span& span : computations_) read(span);
  for (Span& span : transfers_) read(span);
}

void DeviceTimeline::tell(const std::function<void(InstructionId, std::int64_t)>& told) const {
  for (const Span& span : computations_) told(span.id, span.to - span.from);
}

void DeviceTimeline::write(Timeline& timeline) const {
  for (const Span& span : computations_) {
    timeline.start[span.id] = timeline.moving[span.id] = span.from;
    timeline.end[span.id] = span.to;
  }
}

void DeviceTimeline::write(const Program& program, TransferSpans& times) const {
  const std::scoped_lock lock(times.mutex);
  for (const Span& span : transfers_) {
    for (const InstructionId id : {span.id, program.code[span.id].link}) {
      if (id == kNoInstruction || (id != span.id && !span.also_partner)) continue;
      times.moving[id] = span.from;
      times.end[id] = span.to;
    }
  }
}

}  // namespace pipewright::exec::cuda
