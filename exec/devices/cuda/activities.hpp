// What the GPUs of this process do, kernel by kernel, while a training runs (CUPTI): recorded from
// before its devices are made, and taken step by step. Pieces lie on the host's clock as the module
// puts them there (pipewright_cuda::record_activities()), and so in the step's time after a shift;
// how far that is off from the GPU's own events fit_to_step() says.
//
// One of a process at a time; used by one thread, while all ranks stand still.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/timeline/gpu_work.hpp"
#include "core/timeline/timeline.hpp"
#include "exec/base/packing.hpp"
#include "exec/base/waiting.hpp"
#include "exec/devices/cuda/activity_marks.hpp"
#include "exec/devices/cuda/kernel_names.hpp"
#include "exec/devices/cuda/module.hpp"

namespace pipewright::exec::cuda {

class Activities {
 public:
  /// More than viewers open well.
  static constexpr std::size_t kMostOfStep = 1'000'000;

  /// Throws MachineError that says what is missing. Both must outlive it.
  Activities(const pipewright_cuda& cuda, const Program& program, std::size_t most = kMostOfStep)
      : cuda_(cuda), numbers_{program} {
    if (const std::string why = why_no_cupti(cuda); !why.empty()) throw MachineError(why);
    if (cuda.record_activities([] { return local::steady_ns(); }, most) != 0)
      throw MachineError(cuda.why());
  }
  ~Activities() { cuda_.stop_activities(); }
  Activities(const Activities&) = delete;
  Activities& operator=(const Activities&) = delete;

  /// Forgets what was done so far.
  void discard() {
    std::int64_t dropped = 0;
    require(cuda_, cuda_.take_activities([](void*, const pipewright_cuda_activity*) {}, nullptr,
                                         &dropped));
  }

  /// What was done since then. The shift is added to the host's clock.
  GpuWorkLog take(std::int64_t shift_ns) {
    std::vector<pipewright_cuda_activity> all;
    GpuWorkLog log;
    require(cuda_, cuda_.take_activities(
                       [](void* by, const pipewright_cuda_activity* activity) {
                         static_cast<decltype(all)*>(by)->push_back(*activity);
                       },
                       &all, &log.dropped));
    const Places places = places_of(all);
    std::map<const char*, std::string> names;  // of the module, which keeps each once
    for (const pipewright_cuda_activity& one : all) {
      const auto [name, is_new] = names.try_emplace(one.name);
      if (is_new) name->second = kernel_name(one.name);
      log.work.push_back(
          {.kind = static_cast<GpuWork::Kind>(one.kind),
           .rank = rank_of(one, places),
           .instruction = one.about == 0 ? kNoInstruction : numbers_.instruction_of(one.about),
           .stream = one.stream,
           .name = name->second,
           .start_ns = one.start_ns + shift_ns,
           .end_ns = one.end_ns + shift_ns,
           .bytes = one.bytes});
    }
    return log;
  }

 private:
  /// A GPU, and of it a stream of a context, or all.
  using Place = std::tuple<int, std::optional<std::pair<std::uint32_t, std::uint32_t>>>;
  /// The rank whose work is there; nullopt: several'.
  using Places = std::map<Place, std::optional<RankId>>;

  static Place stream_of(const pipewright_cuda_activity& one) {
    return {one.gpu, std::pair(one.context, one.stream)};
  }
  static Place gpu_of(const pipewright_cuda_activity& one) { return {one.gpu, std::nullopt}; }

  Places places_of(const std::vector<pipewright_cuda_activity>& all) const {
    Places places;
    for (const pipewright_cuda_activity& one : all) {
      if (one.about == 0) continue;
      const RankId rank = numbers_.rank_of(one.about);
      for (const Place& place : {stream_of(one), gpu_of(one)}) {
        const auto [found, is_new] = places.try_emplace(place, rank);
        if (!is_new && found->second != rank) found->second.reset();
      }
    }
    return places;
  }

  /// What a library puts there by a thread of its own is of the rank that has the stream, or the
  /// GPU, alone; -1: of nobody known.
  RankId rank_of(const pipewright_cuda_activity& one, const Places& places) const {
    if (one.about != 0) return numbers_.rank_of(one.about);
    for (const Place& place : {stream_of(one), gpu_of(one)}) {
      const auto found = places.find(place);
      if (found != places.end() && found->second) return *found->second;
    }
    return RankId(-1);
  }

  const pipewright_cuda& cuda_;
  const AboutNumbers numbers_;
};

/// For another process of the run, and back, behind what is there.
inline PackedBytes packed(const GpuWorkLog& log) {
  Packer packer;
  packer.put<std::int64_t>(log.dropped);
  for (const GpuWork& one : log.work) {
    packer.put<GpuWork::Kind>(one.kind);
    packer.put<RankId>(one.rank);
    packer.put<InstructionId>(one.instruction);
    packer.put<std::uint32_t>(one.stream);
    packer.put_text(one.name);
    for (const std::int64_t number : {one.start_ns, one.end_ns, one.bytes})
      packer.put<std::int64_t>(number);
  }
  return packer.take();
}

inline void add_packed(const PackedBytes& bytes, GpuWorkLog& log) {
  Unpacker from(bytes);
  log.dropped += from.get<std::int64_t>();
  while (!from.empty()) {
    GpuWork one;
    one.kind = from.get<GpuWork::Kind>();
    one.rank = from.get<RankId>();
    one.instruction = from.get<InstructionId>();
    one.stream = from.get<std::uint32_t>();
    one.name = from.get_text();
    for (std::int64_t* number : {&one.start_ns, &one.end_ns, &one.bytes})
      *number = from.get<std::int64_t>();
    log.work.push_back(std::move(one));
  }
}

/// Leaves out what began after the step, such as copies for a checkpoint, or ended before it, and
/// counts what is of no rank; in order; and how far the clocks are apart.
inline void fit_to_step(GpuWorkLog& log, const Program& program, const Timeline& timeline) {
  std::erase_if(log.work, [&](const GpuWork& one) {
    return one.end_ns <= 0 || one.start_ns >= timeline.makespan_ns;
  });
  log.strays = static_cast<std::int64_t>(
      std::erase_if(log.work, [](const GpuWork& one) { return one.rank.value < 0; }));
  std::stable_sort(log.work.begin(), log.work.end(), [](const GpuWork& a, const GpuWork& b) {
    return std::tie(a.rank.value, a.start_ns, a.end_ns) <
           std::tie(b.rank.value, b.start_ns, b.end_ns);
  });
  for (GpuWork& one : log.work) {
    const bool is_computed =
        one.instruction != kNoInstruction && !program.code[one.instruction].is_communication();
    if (is_computed)
      log.apart_ns = std::max({log.apart_ns, timeline.start[one.instruction] - one.start_ns,
                               one.end_ns - timeline.end[one.instruction]});
    one.start_ns = std::max<std::int64_t>(0, one.start_ns);
  }
}

}  // namespace pipewright::exec::cuda
