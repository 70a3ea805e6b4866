// What groups whose members are threads can do besides (exec/collectives/threads.hpp): bytes for
// the next member that nobody waits for, for what goes on beside computations (docs/semantics.md
// §3.4). A Posting belongs to one thread at a time, as its Group.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace pipewright::exec::collectives {

class Posting {
 public:
  virtual ~Posting() = default;

  /// A copy for the next member, under this name; the last one's is for the first.
  virtual void post(const std::string& name, std::span<const std::byte> bytes) = 0;
  /// The oldest of the name that the member before has posted. Whoever calls it knows that it has:
  /// nothing is waited for. Throws RunError if it has not, or posted another size.
  virtual void collect(const std::string& name, std::span<std::byte> bytes) = 0;
};

}  // namespace pipewright::exec::collectives
