// A transport that hands everything on to another one, for tests that change one thing of it.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "exec/runtime/transport.hpp"

namespace pipewright::test {

class ForwardingTransport : public exec::Transport {
 public:
  /// The other one must outlive it.
  explicit ForwardingTransport(exec::Transport& inner) : inner_(inner) {}

  std::int64_t now() const override { return inner_.now(); }
  void sleep_until(RankId r, std::int64_t t) override { inner_.sleep_until(r, t); }
  std::vector<RankId> local_ranks() const override { return inner_.local_ranks(); }
  void meet(RankId r, const std::function<void()>& f) override { inner_.meet(r, f); }
  void issue(RankId r, InstructionId id, exec::PayloadPtr data) override {
    inner_.issue(r, id, std::move(data));
  }
  void provide(RankId r, InstructionId id, exec::PayloadPtr data) override {
    inner_.provide(r, id, std::move(data));
  }
  void wait(RankId r, InstructionId id) override { inner_.wait(r, id); }
  exec::PayloadPtr take(RankId r, InstructionId id) override { return inner_.take(r, id); }
  void stop() noexcept override { inner_.stop(); }
  bool stands_still_within(std::int64_t t) override { return inner_.stands_still_within(t); }
  void end_watch() noexcept override { inner_.end_watch(); }
  std::uint64_t ended_count() const override { return inner_.ended_count(); }
  void report(Timeline& t, Progress& p) const override { inner_.report(t, p); }

 private:
  exec::Transport& inner_;
};

}  // namespace pipewright::test
