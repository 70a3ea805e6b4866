#include "exec/collectives/process/wire_group.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "exec/collectives/summation.hpp"

namespace pipewright::exec::collectives {
namespace {

// Of a letter: what a process keeps of arrays on their way grows with it.
constexpr std::size_t kPieceBytes = std::size_t{256} << 10U;

/// Some of the bytes of an array.
struct Range {
  std::byte* at = nullptr;
  std::size_t bytes = 0;
};

class WireGroup final : public Group {
 public:
  WireGroup(std::shared_ptr<Mail> mail, std::uint32_t number, std::vector<int> processes, int own)
      : mail_(std::move(mail)),
        number_(number),
        processes_(std::move(processes)),
        own_(own),
        sent_(processes_.size(), 0),
        received_(processes_.size(), 0) {}
  ~WireGroup() override { mail_->close_group(number_, processes_, sent_); }
  WireGroup(const WireGroup&) = delete;
  WireGroup& operator=(const WireGroup&) = delete;

  int member() const override { return own_; }
  int members() const override { return static_cast<int>(processes_.size()); }
  bool all_reduce(Summands values) override;
  bool reduce_scatter(Summands values) override;
  void all_gather(PartsIn all) override;
  void all_to_all(PartsOut out, PartsIn in) override;
  void broadcast(int root, std::span<std::byte> bytes) override;
  void give_up(const std::string& why) noexcept override {
    mail_->give_up(number_, processes_, why);
  }

 private:
  using Ranges = std::vector<Range>;  // by member

  /// The member so many places further round the ring.
  int around(int places) const { return ((own_ + places) % members() + members()) % members(); }
  void send(int to, Letter letter);
  Letter receive(int from);
  Letter receive(int from, std::size_t bytes);
  template <class Call>
  auto guarded(const Call& call);

  Ranges shares_from(const Summands& values, std::size_t at) const;
  bool reduce(const Ranges& shares, SumKind kind, bool by_ring);
  bool reduce_straight(const Ranges& shares, SumKind kind);
  bool reduce_round_the_ring(const Ranges& shares, SumKind kind);
  bool reduce_all(const Summands& values);
  bool gather(const Ranges& parts, bool by_ring, bool fine);

  const std::shared_ptr<Mail> mail_;
  const std::uint32_t number_;
  const std::vector<int> processes_;
  const int own_;
  std::vector<std::uint64_t> sent_, received_;  // letters, by member
};

PackedBytes bytes_of(const Range& range) { return {range.at, range.at + range.bytes}; }

void copy_to(const Range& range, const PackedBytes& bytes) {
  if (!bytes.empty()) std::memcpy(range.at, bytes.data(), bytes.size());
}

/// What of so many bytes lies in the piece that begins at `at`.
std::size_t piece_from(std::size_t bytes, std::size_t at) {
  return at < bytes ? std::min(kPieceBytes, bytes - at) : 0;
}

// --- Letters ---

void WireGroup::send(int to, Letter letter) {
  mail_->send(number_, processes_[index_of(to)], sent_[index_of(to)]++, std::move(letter));
}

Letter WireGroup::receive(int from) {
  return mail_->receive(number_, processes_[index_of(from)], received_[index_of(from)]++);
}

Letter WireGroup::receive(int from, std::size_t bytes) {
  Letter letter = receive(from);
  if (letter.bytes.size() != bytes)
    throw RunError("members " + std::to_string(std::min(from, own_)) + " and " +
                   std::to_string(std::max(from, own_)) +
                   " of a group call different collectives, or of different sizes");
  return letter;
}

/// A call, to its last byte; whoever fails tells the others.
template <class Call>
auto WireGroup::guarded(const Call& call) {
  try {
    const auto result = call();
    mail_->flush(number_);
    return result;
  } catch (const RunError& error) {
    give_up(error.what());
    throw;
  }
}

// --- Sums ---

/// Of each share the piece that begins at byte `at`.
WireGroup::Ranges WireGroup::shares_from(const Summands& values, std::size_t at) const {
  const std::size_t element = element_bytes(values.kind);
  Ranges ranges;
  for (int m = 0; m < members(); ++m) {
    const std::size_t begin = share_begin(values.size, members(), m) * element;
    const std::size_t bytes = share_begin(values.size, members(), m + 1) * element - begin;
    ranges.push_back({values.at + begin + at, piece_from(bytes, at)});
  }
  return ranges;
}

bool WireGroup::reduce(const Ranges& shares, SumKind kind, bool by_ring) {
  return by_ring && kind != SumKind::ExactFloats ? reduce_round_the_ring(shares, kind)
                                                 : reduce_straight(shares, kind);
}

bool WireGroup::reduce_straight(const Ranges& shares, SumKind kind) {
  for (int step = 1; step < members(); ++step)
    send(around(step), {.bytes = bytes_of(shares[index_of(around(step))])});
  const Range& own = shares[index_of(own_)];
  std::vector<Letter> letters(processes_.size());
  std::vector<const std::byte*> summands(processes_.size(), own.at);
  for (int step = 1; step < members(); ++step) {
    const std::size_t from = index_of(around(-step));
    letters[from] = receive(around(-step), own.bytes);
    summands[from] = letters[from].bytes.data();
  }
  return add_up(kind, summands, own.bytes / element_bytes(kind), own.at);
}

/// Of share j the sum begins at member j+1 and ends at j, and grows on its way.
bool WireGroup::reduce_round_the_ring(const Ranges& shares, SumKind kind) {
  Letter sum{.bytes = bytes_of(shares[index_of(around(-1))])};
  for (int step = 2; step <= members(); ++step) {
    send(around(1), std::move(sum));
    const Range& share = shares[index_of(around(-step))];
    sum = receive(around(-1), share.bytes);
    const std::byte* const summands[] = {sum.bytes.data(), share.at};
    std::byte* const result = step == members() ? share.at : sum.bytes.data();
    sum.fine = add_up(kind, summands, share.bytes / element_bytes(kind), result) && sum.fine;
  }
  return sum.fine;
}

bool WireGroup::gather(const Ranges& parts, bool by_ring, bool fine) {
  if (!by_ring) {
    for (int step = 1; step < members(); ++step)
      send(around(step), {.bytes = bytes_of(parts[index_of(own_)]), .fine = fine});
  }
  Letter next{.bytes = by_ring ? bytes_of(parts[index_of(own_)]) : PackedBytes{}, .fine = fine};
  for (int step = 1; step < members(); ++step) {
    if (by_ring) send(around(1), std::move(next));
    const Range& part = parts[index_of(around(-step))];
    next = receive(around(by_ring ? -1 : -step), part.bytes);
    copy_to(part, next.bytes);
    fine = fine && next.fine;
  }
  return fine;
}

/// Each sums everything by itself, which takes one letter to everybody.
bool WireGroup::reduce_all(const Summands& values) {
  const Range whole{values.at, values.size * element_bytes(values.kind)};
  const Ranges everywhere(processes_.size(), whole);
  return reduce_straight(everywhere, values.kind);
}

bool WireGroup::all_reduce(Summands values) {
  const std::size_t bytes = values.size * element_bytes(values.kind);
  const std::size_t longest = bytes / index_of(members()) + element_bytes(values.kind);
  return guarded([&] {
    if (bytes <= kRingBytes || members() == 1) return reduce_all(values);
    bool fine = true;
    for (std::size_t at = 0; at < longest; at += kPieceBytes) {
      const Ranges shares = shares_from(values, at);
      const bool own_is_fine = reduce(shares, values.kind, true);
      fine = gather(shares, true, own_is_fine) && fine;
    }
    return fine;
  });
}

bool WireGroup::reduce_scatter(Summands values) {
  const std::size_t bytes = values.size * element_bytes(values.kind);
  const std::size_t longest = bytes / index_of(members()) + element_bytes(values.kind);
  return guarded([&] {
    bool fine = true;
    for (std::size_t at = 0; at < longest; at += kPieceBytes) {
      const bool by_ring = bytes > kRingBytes && members() > 1;
      fine = reduce(shares_from(values, at), values.kind, by_ring) && fine;
    }
    return fine;
  });
}

// --- Copies ---

void WireGroup::all_gather(PartsIn all) {
  const std::size_t longest = *std::max_element(all.sizes.begin(), all.sizes.end());
  guarded([&] {
    for (std::size_t at = 0; at == 0 || at < longest; at += kPieceBytes) {
      Ranges parts;
      std::byte* begin = all.bytes.data();
      for (const std::size_t size : all.sizes) {
        parts.push_back({begin + std::min(at, size), piece_from(size, at)});
        begin += size;
      }
      gather(parts, all.bytes.size() > kRingBytes, true);
    }
    return true;
  });
}

/// The first letter of each pair says how much there is in all, also where there is nothing.
void WireGroup::all_to_all(PartsOut out, PartsIn in) {
  std::vector<std::size_t> out_begin(processes_.size(), 0), in_begin(processes_.size(), 0);
  std::size_t longest = 1;
  for (std::size_t m = 0; m < processes_.size(); ++m) {
    longest = std::max({longest, out.sizes[m], in.sizes[m]});
    if (m + 1 == processes_.size()) break;
    out_begin[m + 1] = out_begin[m] + out.sizes[m];
    in_begin[m + 1] = in_begin[m] + in.sizes[m];
  }
  const auto refuse = [&](int from, std::size_t sends, std::size_t expects) {
    throw RunError("member " + std::to_string(from) + " sends " + std::to_string(sends) +
                   " bytes to member " + std::to_string(own_) + ", which expects " +
                   std::to_string(expects));
  };
  const auto exchange = [&](int to, int from, std::size_t at) {
    const std::size_t t = index_of(to), f = index_of(from);
    if (at == 0 || at < out.sizes[t]) {
      const auto piece = out.bytes.subspan(out_begin[t] + std::min(at, out.sizes[t]),
                                           piece_from(out.sizes[t], at));
      send(to, {.bytes = {piece.begin(), piece.end()}, .whole = out.sizes[t]});
    }
    if (at > 0 && at >= in.sizes[f]) return;
    const Letter letter = receive(from);
    if (letter.whole != in.sizes[f]) refuse(from, letter.whole, in.sizes[f]);
    copy_to({in.bytes.data() + in_begin[f] + at, letter.bytes.size()}, letter.bytes);
  };
  const std::size_t own = index_of(own_);
  guarded([&] {
    if (out.sizes[own] != in.sizes[own]) refuse(own_, out.sizes[own], in.sizes[own]);
    if (out.sizes[own] > 0)
      std::memcpy(&in.bytes[in_begin[own]], &out.bytes[out_begin[own]], out.sizes[own]);
    for (std::size_t at = 0; at < longest; at += kPieceBytes) {
      for (int step = 1; step < members(); ++step) exchange(around(step), around(-step), at);
    }
    return true;
  });
}

/// Small ones straight from the root, others from each to the next one round the ring.
void WireGroup::broadcast(int root, std::span<std::byte> bytes) {
  const bool by_ring = bytes.size() > kRingBytes;
  guarded([&] {
    for (std::size_t at = 0; at == 0 || at < bytes.size(); at += kPieceBytes) {
      const Range piece{bytes.data() + at, piece_from(bytes.size(), at)};
      Letter letter;
      if (own_ == root) {
        letter.bytes = bytes_of(piece);
      } else {
        letter = receive(by_ring ? around(-1) : root, piece.bytes);
        copy_to(piece, letter.bytes);
      }
      if (by_ring && around(1) != root) send(around(1), std::move(letter));
      if (by_ring || own_ != root) continue;
      for (int step = 1; step < members(); ++step) send(around(step), letter);
    }
    return true;
  });
}

}  // namespace

std::unique_ptr<Group> wire_group(std::shared_ptr<Mail> mail, std::span<const int> processes,
                                  Look look) {
  const std::uint32_t number = mail->open_group(std::move(look));
  const auto found = std::find(processes.begin(), processes.end(), mail->link().process());
  if (found == processes.end()) return nullptr;
  const int own = static_cast<int>(found - processes.begin());
  return std::make_unique<WireGroup>(std::move(mail), number,
                                     std::vector<int>(processes.begin(), processes.end()), own);
}

}  // namespace pipewright::exec::collectives
