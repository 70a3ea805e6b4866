#include "exec/training/weight_versions.hpp"

#include <algorithm>

#include "core/base/error.hpp"

namespace pipewright::exec {

void WeightVersions::exchange(int version) {
  PIPEWRIGHT_ASSERT(kept_ != nullptr, "weight versions on a device that keeps none");
  kept_->exchange(version);
}

void WeightVersions::begin() {
  PIPEWRIGHT_ASSERT(live() == 1, "a step ended with old weights still kept");
  newest_ = in_use_ = 0;
}

void WeightVersions::use(int version) {
  if (version == in_use_) return;
  if (in_use_ != newest_) exchange(in_use_);
  in_use_ = newest_;
  if (version == newest_) return;
  exchange(version);
  in_use_ = version;
}

void WeightVersions::begin_next(bool keep) {
  use(newest_);
  if (keep) {
    PIPEWRIGHT_ASSERT(kept_ != nullptr, "weight versions on a device that keeps none");
    kept_->keep(newest_);
  }
  in_use_ = ++newest_;
  peak_ = std::max(peak_, live());
}

void WeightVersions::drop(int version) {
  if (version == newest_) return;
  use(newest_);
  if (kept_ != nullptr) kept_->drop(version);
}

}  // namespace pipewright::exec
