#include "exec/runtime/final_state.hpp"

#include <algorithm>
#include <utility>

namespace pipewright::exec {
namespace {

/// A slice of an array by instruction: what a rank wrote.
template <class T>
void put_slice(Packer& packer, const std::vector<T>& all, InstructionId begin, InstructionId end) {
  packer.put_all(std::span<const T>(all).subspan(begin, end - begin));
}

template <class T>
void get_slice(Unpacker& unpacker, std::vector<T>& all, InstructionId begin, InstructionId end) {
  const std::vector<T> slice = unpacker.get_all<T>();
  if (slice.size() != end - begin) throw RunError("another process runs another Program");
  std::copy(slice.begin(), slice.end(), all.begin() + begin);
}

/// Calls f(begin, end) for each rank.
template <class F>
void for_ranks(const Program& program, const std::vector<RankId>& ranks, const F& f) {
  for (const RankId rank : ranks) {
    const auto r = static_cast<std::size_t>(rank.value);
    f(program.rank_begin[r], program.rank_begin[r + 1]);
  }
}

void put_ranks(Packer& packer, const std::vector<RankId>& ranks) {
  std::vector<std::int64_t> values;
  for (const RankId rank : ranks) values.push_back(rank.value);
  packer.put_all(std::span<const std::int64_t>(values));
}

std::vector<RankId> get_ranks(Unpacker& unpacker, const Program& program) {
  std::vector<RankId> ranks;
  for (const auto value : unpacker.get_all<std::int64_t>()) {
    if (value < 0 || value >= program.ranks()) throw RunError("another process has other ranks");
    ranks.emplace_back(value);
  }
  return ranks;
}

void put_times(Packer& packer, const Program& program, const std::vector<RankId>& ranks,
               const Timeline& timeline) {
  for_ranks(program, ranks, [&](InstructionId begin, InstructionId end) {
    put_slice(packer, timeline.start, begin, end);
    put_slice(packer, timeline.moving, begin, end);
    put_slice(packer, timeline.end, begin, end);
  });
}

void get_times(Unpacker& unpacker, const Program& program, const std::vector<RankId>& ranks,
               Timeline& timeline) {
  for_ranks(program, ranks, [&](InstructionId begin, InstructionId end) {
    get_slice(unpacker, timeline.start, begin, end);
    get_slice(unpacker, timeline.moving, begin, end);
    get_slice(unpacker, timeline.end, begin, end);
  });
}

void put_look(Packer& packer, const RankLook& look) {
  packer.put<std::int64_t>(look.rank.value);
  packer.put<Standing>(look.standing);
  packer.put<std::int64_t>(look.looked_ns);
  packer.put<bool>(look.dead);
  packer.put<bool>(look.awaits_time);
  packer.put_all(std::span<const FlightEntry>(look.recent));
}

RankLook get_look(Unpacker& unpacker) {
  RankLook look;
  look.rank = RankId(unpacker.get<std::int64_t>());
  look.standing = unpacker.get<Standing>();
  look.looked_ns = unpacker.get<std::int64_t>();
  look.dead = unpacker.get<bool>();
  look.awaits_time = unpacker.get<bool>();
  look.recent = unpacker.get_all<FlightEntry>();
  return look;
}

/// Which of two causes says more: a higher number.
int weight(StopCause cause) {
  switch (cause) {
    case StopCause::PeerLost:
      return 6;
    case StopCause::Failed:
      return 5;
    case StopCause::Interrupted:
      return 4;
    case StopCause::StandsStill:
      return 3;
    case StopCause::NoProgress:
      return 2;
    case StopCause::Elsewhere:
      return 1;
    case StopCause::None:
      return 0;
  }
  return 0;
}

void ensure_arrays(const Program& program, FinalState& look) {
  const std::size_t n = program.code.size();
  look.timeline.start.resize(n, kNotEnded);
  look.timeline.moving.resize(n, kNotEnded);
  look.timeline.end.resize(n, kNotEnded);
  look.progress.ended.resize(n, 0);
  look.progress.left.resize(n, 0);
}

}  // namespace

PackedBytes packed(const Program& program, const std::vector<RankId>& ranks,
                   const FinalState& look) {
  Packer packer;
  packer.put<StopCause>(look.cause);
  packer.put_text(look.failure);
  const bool has_step = look.timeline.end.size() == program.code.size();
  put_ranks(packer, has_step ? ranks : std::vector<RankId>{});
  if (has_step) {
    put_times(packer, program, ranks, look.timeline);
    for_ranks(program, ranks, [&](InstructionId begin, InstructionId end) {
      put_slice(packer, look.progress.ended, begin, end);
      put_slice(packer, look.progress.left, begin, end);
    });
  }
  put_ranks(packer, look.lost);
  packer.put<std::uint64_t>(look.ranks.size());
  for (const RankLook& one : look.ranks) put_look(packer, one);
  return packer.take();
}

void merge(const Program& program, const PackedBytes& bytes, FinalState& look) {
  Unpacker unpacker(bytes);
  const auto cause = unpacker.get<StopCause>();
  std::string failure = unpacker.get_text();
  if (weight(cause) > weight(look.cause)) {
    look.cause = cause;
    look.failure = std::move(failure);
  }
  ensure_arrays(program, look);
  const std::vector<RankId> ranks = get_ranks(unpacker, program);
  get_times(unpacker, program, ranks, look.timeline);
  for_ranks(program, ranks, [&](InstructionId begin, InstructionId end) {
    get_slice(unpacker, look.progress.ended, begin, end);
    get_slice(unpacker, look.progress.left, begin, end);
  });
  for (const RankId rank : get_ranks(unpacker, program)) look.lost.push_back(rank);
  const auto count = unpacker.get<std::uint64_t>();
  for (std::uint64_t i = 0; i < count; ++i) look.ranks.push_back(get_look(unpacker));
}

void complete(const Program& program, FinalState& look) {
  ensure_arrays(program, look);
  std::vector<std::uint8_t> known(static_cast<std::size_t>(program.ranks()), 0);
  for (const RankLook& one : look.ranks) known[static_cast<std::size_t>(one.rank.value)] = 1;
  for (int r = 0; r < program.ranks(); ++r) {
    if (known[static_cast<std::size_t>(r)] != 0) continue;
    RankLook unknown;
    unknown.rank = RankId(r);
    look.ranks.push_back(std::move(unknown));
  }
  for (RankLook& one : look.ranks) {
    if (std::count(look.lost.begin(), look.lost.end(), one.rank) > 0) one.dead = true;
  }
  std::sort(look.ranks.begin(), look.ranks.end(),
            [](const RankLook& a, const RankLook& b) { return a.rank < b.rank; });
}

std::string lost_text(const std::vector<LostRank>& lost) {
  std::string text;
  for (const LostRank& one : lost) {
    text += (text.empty() ? "rank " : "; rank ") + std::to_string(one.rank.value) +
            (one.has_given_up ? " has given up: " : " is dead: ") + one.how;
  }
  return text;
}

PackedBytes packed(const Program& program, const std::vector<RankId>& ranks, const StepPart& part) {
  Packer packer;
  put_ranks(packer, ranks);
  put_times(packer, program, ranks, part.timeline);
  packer.put<bool>(part.loss.has_value());
  packer.put<double>(part.loss.value_or(0));
  packer.put_text(part.not_finite);
  return packer.take();
}

void merge(const Program& program, const PackedBytes& bytes, StepPart& part) {
  Unpacker unpacker(bytes);
  get_times(unpacker, program, get_ranks(unpacker, program), part.timeline);
  const bool has_loss = unpacker.get<bool>();
  const double loss = unpacker.get<double>();
  if (has_loss) part.loss = part.loss.value_or(0) + loss;
  std::string not_finite = unpacker.get_text();
  if (part.not_finite.empty()) part.not_finite = std::move(not_finite);
}

}  // namespace pipewright::exec
