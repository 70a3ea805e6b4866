#include "exec/devices/cuda/events.hpp"

#include "exec/devices/cuda/module.hpp"

namespace pipewright::exec::cuda {

EventPool::Shelf::~Shelf() {
  for (const auto& kind : free) {
    for (void* event : kind) cuda.release_event(event);
  }
}

Event EventPool::take(bool is_timed) {
  void* event = nullptr;
  {
    const std::scoped_lock lock(shelf_->mutex);
    auto& free = shelf_->free[is_timed ? 1 : 0];
    if (!free.empty()) {
      event = free.back();
      free.pop_back();
    }
  }
  if (event == nullptr) event = required(shelf_->cuda, shelf_->cuda.event(is_timed ? 1 : 0));
  return {event, [shelf = shelf_, is_timed](void* which) {
            const std::scoped_lock lock(shelf->mutex);
            shelf->free[is_timed ? 1 : 0].push_back(which);
          }};
}

}  // namespace pipewright::exec::cuda
