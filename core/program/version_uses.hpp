// Which version of its stages' weights each computation of a rank uses, and until when each is
// needed (docs/semantics.md §3.1). Read off the rank's list once; immutable after that. Places
// count from the list's first cell. Where no computation of the list names a version, none is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/order/order.hpp"

namespace pipewright {

class VersionUses {
 public:
  explicit VersionUses(std::span<const Cell> list);

  /// No computation names a version.
  bool empty() const { return stages_.empty(); }
  /// The version that F, I, W and B of the micro-batch use; 0 where none is named.
  int version_of(int stage, int micro_batch) const;
  /// Whether a computation after this place uses the version.
  bool is_used_after(int stage, int version, std::size_t place) const;
  /// Whether the last use of the version is at this place.
  bool is_last_use(int stage, int version, std::size_t place) const;

 private:
  struct Stage {
    std::vector<std::int32_t> versions;  // by micro-batch
    std::map<int, std::size_t> ends;     // by version, any number: one past the last use
  };

  std::size_t end_of(int stage, int version) const;

  std::map<int, Stage> stages_;
};

}  // namespace pipewright
