// Worlds of processes that have a link (exec/transports/process/link.hpp), for
// collective_cases.hpp.
#pragma once

#include <memory>
#include <vector>

#include "exec/collectives/process/window_group.hpp"
#include "exec/collectives/process/wire_group.hpp"
#include "tests/support/collective_cases.hpp"

namespace pipewright::test {

class LinkWorld : public CollectiveWorld {
 public:
  explicit LinkWorld(exec::mpi::Link& link) : link_(link) {}
  int self() const override { return link_.process(); }
  int size() const override { return link_.processes(); }

 protected:
  exec::mpi::Link& link_;
};

class WindowWorld final : public LinkWorld {
 public:
  using LinkWorld::LinkWorld;
  std::unique_ptr<exec::collectives::Group> group(const std::vector<int>& who) override {
    return exec::collectives::window_group(link_, who);
  }
};

class WireWorld final : public LinkWorld {
 public:
  explicit WireWorld(exec::mpi::Link& link)
      : LinkWorld(link), mail_(std::make_shared<exec::collectives::Mail>(link)) {}
  std::unique_ptr<exec::collectives::Group> group(const std::vector<int>& who) override {
    return exec::collectives::wire_group(mail_, who);
  }
  int first_summand(std::size_t bytes, int members, int share) const override {
    return bytes > exec::collectives::kRingBytes ? (share + 1) % members : 0;
  }

 private:
  const std::shared_ptr<exec::collectives::Mail> mail_;
};

}  // namespace pipewright::test
