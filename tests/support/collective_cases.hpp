// What collectives promise (exec/collectives/group.hpp), as cases that run on every channel. A case
// is run by every participant of a world at once, in a thread or a process of its own; each works
// out by itself what it has to get.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "exec/collectives/group.hpp"

namespace pipewright::test {

class CollectiveWorld {
 public:
  virtual ~CollectiveWorld() = default;
  virtual int self() const = 0;
  virtual int size() const = 0;
  /// A group of these participants; all participants of the world call it, in one order. Null for
  /// those that are not in it.
  virtual std::unique_ptr<exec::collectives::Group> group(const std::vector<int>& who) = 0;
  /// Of the sum of floats in that share of so many bytes: the member that is added first. The
  /// others follow in ascending order, member 0 after the last one.
  virtual int first_summand(std::size_t bytes, int members, int share) const {
    static_cast<void>(bytes), static_cast<void>(members), static_cast<void>(share);
    return 0;
  }
};

struct CollectiveCase {
  const char* name;
  void (*run)(CollectiveWorld& world);
};
std::span<const CollectiveCase> collective_cases();

}  // namespace pipewright::test
