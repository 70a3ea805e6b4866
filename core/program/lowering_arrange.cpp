#include "core/program/lowering.hpp"

#include <algorithm>

namespace pipewright::lowering {
namespace {

using Places = std::vector<std::uint32_t>;  // in the row as it was

/// §1.2: each RECV to just before its consumer.
class Deferring {
 public:
  explicit Deferring(const std::vector<Action>& partners) : partners_(partners) {}

  /// The old place of each instruction, in the new order.
  void find(const Row& row, Places& places) {
    collect(row);
    places.clear();
    places.reserve(row.size());
    for (std::uint32_t i = 0; i < row.size(); ++i) {
      const Instruction& in = row[i];
      if (is_moved(in)) continue;
      fetch(in.kind, in.stage, in.micro_batch, places);
      if (in.has(Instruction::kPair)) {
        const Action& second = partners_[in.link];
        fetch(second.kind, static_cast<std::size_t>(second.stage.value),
              static_cast<std::uint32_t>(second.micro_batch.value), places);
      }
      places.push_back(i);
    }
    append_left(places);
  }

 private:
  struct Receive {
    std::uint32_t micro_batch, place;
    bool placed = false;
  };
  /// What is received of one kind for one stage, by micro-batch; mostly it is taken in this order.
  struct Stream {
    std::vector<Receive> receives;
    std::size_t next = 0;
  };

  static bool is_moved(const Instruction& in) { return is_recv(in.kind) && !is_call(in.kind); }

  static std::size_t key(bool activation, std::size_t stage) {
    return 2 * stage + (activation ? 1 : 0);
  }

  void collect(const Row& row) {
    for (Stream& stream : streams_) {
      stream.receives.clear();
      stream.next = 0;
    }
    for (std::uint32_t i = 0; i < row.size(); ++i) {
      if (!is_moved(row[i])) continue;
      const std::size_t at = key(carries_activation(row[i].kind), row[i].stage);
      if (at >= streams_.size()) streams_.resize(at + 1);
      streams_[at].receives.push_back({row[i].micro_batch, i});
    }
    const auto by_micro_batch = [](const Receive& a, const Receive& b) {
      return a.micro_batch < b.micro_batch;
    };
    for (Stream& stream : streams_) {
      if (!std::is_sorted(stream.receives.begin(), stream.receives.end(), by_micro_batch))
        std::stable_sort(stream.receives.begin(), stream.receives.end(), by_micro_batch);
    }
  }

  void fetch(ActionKind kind, std::size_t stage, std::uint32_t micro_batch, Places& places) {
    if (kind != ActionKind::F && kind != ActionKind::I && kind != ActionKind::B) return;
    const std::size_t at = key(kind == ActionKind::F, stage);
    if (at >= streams_.size()) return;
    auto& [receives, next] = streams_[at];
    if (next == receives.size() || receives[next].micro_batch != micro_batch) {
      const auto found = std::lower_bound(
          receives.begin(), receives.end(), micro_batch,
          [](const Receive& a, std::uint32_t wanted) { return a.micro_batch < wanted; });
      next = static_cast<std::size_t>(found - receives.begin());
    }
    for (; next < receives.size() && receives[next].micro_batch == micro_batch; ++next) {
      if (receives[next].placed) return;
      places.push_back(receives[next].place);
      receives[next].placed = true;
    }
  }

  /// Those that nobody takes.
  void append_left(Places& places) const {
    const auto first = static_cast<std::ptrdiff_t>(places.size());
    for (const Stream& stream : streams_) {
      for (const Receive& receive : stream.receives) {
        if (!receive.placed) places.push_back(receive.place);
      }
    }
    std::sort(places.begin() + first, places.end());
  }

  const std::vector<Action>& partners_;
  std::vector<Stream> streams_;  // by kind and stage
};

/// §1.3: each run in Megatron's order for the parity of the rank, as old places.
void find_even_odd(const Row& row, bool odd_rank, Places& places) {
  const auto place = [odd_rank](const Instruction& in) {
    const int base = in.kind == ActionKind::SendF   ? 0
                     : in.kind == ActionKind::RecvF ? 1
                     : in.kind == ActionKind::SendB ? 2
                                                    : 3;
    return odd_rank ? base ^ 1 : base;
  };
  places.clear();
  places.reserve(row.size());
  const auto size = static_cast<std::uint32_t>(row.size());
  for (std::uint32_t begin = 0; begin < size; ++begin) {
    std::uint32_t end = begin;
    while (end < size && is_pipeline_transfer(row[end].kind)) ++end;
    for (int k = 0; end > begin && k < 4; ++k) {
      for (std::uint32_t i = begin; i < end; ++i) {
        if (place(row[i]) == k) places.push_back(i);
      }
    }
    begin = end;
    if (end < size) places.push_back(end);
  }
}

template <class List>
void reorder(List& list, const Places& places, std::vector<typename List::value_type>& moved) {
  moved.clear();
  moved.reserve(places.size());
  for (const std::uint32_t place : places) moved.push_back(list[place]);
  std::copy(moved.begin(), moved.end(), list.begin());
}

}  // namespace

void arrange(Draft& draft, const CommPolicy& policy, std::size_t devices) {
  if (policy.post != Post::Deferred && policy.run_order != RunOrder::EvenOdd) return;
  Deferring deferring(draft.partners);
  Places places;
  std::vector<Instruction> moved;
  std::vector<std::int32_t> moved_versions;
  for (std::size_t r = 0; r < draft.ranks.size(); ++r) {
    Row& row = draft.ranks[r];
    const auto apply = [&] {
      reorder(row, places, moved);
      if (!draft.versions.empty()) reorder(draft.versions[r], places, moved_versions);
    };
    if (policy.post == Post::Deferred) {
      deferring.find(row, places);
      apply();
    }
    if (policy.run_order == RunOrder::EvenOdd) {
      find_even_odd(row, r / devices % 2 == 1, places);
      apply();
    }
  }
}

}  // namespace pipewright::lowering
