#include "core/plan/profile_samples.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/json_fields.hpp"

namespace pipewright {
namespace {

constexpr ProfileClock kClock = ProfileClock::Wall;
constexpr int kMostRanksAtOnce = 65536, kMostRepeatsSampled = 1'000'000;
constexpr std::int64_t kMostMessageBytes = std::int64_t{1} << 50;

using Samples = std::vector<std::int64_t>;

Samples read_samples(const JsonCursor& owner, const char* key) {
  Samples samples;
  const auto found = owner.find(key);
  if (!found) return samples;
  for (const JsonCursor& one : found->elements()) samples.push_back(read_duration(one).value);
  return samples;
}

/// F and B have to be there.
StageTimes read_stage_times(const JsonCursor& value) {
  value.only({"f", "b", "i", "w", "opt"});
  StageTimes times{read_samples(value, "f"), read_samples(value, "b"), read_samples(value, "i"),
                   read_samples(value, "w"), read_samples(value, "opt")};
  if (times.f.empty() || times.b.empty()) value.fail("at least one time of F, and one of B");
  if (times.i.empty() != times.w.empty()) value.fail("times of I and of W, or of neither");
  return times;
}

SizeSamples read_size_samples(const JsonCursor& value) {
  value.only({"micro_batch_size", "layers", "whole", "between"});
  SizeSamples size;
  size.micro_batch_size = read_count(value.at("micro_batch_size"), 1, kMostMicroBatchSize);
  for (const JsonCursor& layer : value.at("layers").elements())
    size.layers.push_back(read_stage_times(layer));
  if (size.layers.empty()) value.at("layers").fail("at least one layer");
  size.whole = read_stage_times(value.at("whole"));
  size.between = read_samples(value, "between");
  return size;
}

double typical_ns(const Samples& samples) {
  return samples.empty() ? 0 : static_cast<double>(typical(distribution_of(samples), kClock).value);
}

/// What a stage costs whatever is in it: no more than the quickest layer takes.
double fixed_ns(const SizeSamples& size, Samples StageTimes::*kind) {
  if (size.layers.size() < 2) return 0;
  double sum = 0, least = typical_ns(size.layers.front().*kind);
  for (const StageTimes& layer : size.layers) {
    sum += typical_ns(layer.*kind);
    least = std::min(least, typical_ns(layer.*kind));
  }
  const double more = sum - typical_ns(size.whole.*kind);
  return std::clamp(more / static_cast<double>(size.layers.size() - 1), 0.0, least);
}

/// No layer is free: 0 would say that it was not measured.
Nanoseconds without(double ns, double fixed) {
  return Nanoseconds(std::max<std::int64_t>(1, std::llround(ns - fixed)));
}

LayerTimes layer_of(const StageTimes& stage, double fixed) {
  const Nanoseconds b = without(typical_ns(stage.b), fixed);
  LayerTimes times{.f = without(typical_ns(stage.f), fixed), .i = b, .w = {}, .opt = {}};
  times.opt = Nanoseconds(std::llround(typical_ns(stage.opt)));
  if (stage.i.empty()) return times;
  times.i = without(typical_ns(stage.i), fixed);
  times.w = without(typical_ns(stage.w), fixed);
  times.saved_by_b = times.i + times.w - b;
  return times;
}

LayerSpread spread_of(const StageTimes& stage) {
  return {.f = distribution_of(stage.f),
          .i = distribution_of(stage.i),
          .w = distribution_of(stage.w),
          .opt = distribution_of(stage.opt),
          .b = distribution_of(stage.b)};
}

/// Adds what it found to the overhead of an action.
ProfileSize size_of(const SizeSamples& samples, double& overhead) {
  const double fixed =
      std::midpoint(fixed_ns(samples, &StageTimes::f), fixed_ns(samples, &StageTimes::b));
  overhead += fixed + typical_ns(samples.between);
  ProfileSize size;
  size.micro_batch_size = samples.micro_batch_size;
  for (const StageTimes& layer : samples.layers) {
    size.layers.push_back(layer_of(layer, fixed));
    size.spreads.push_back(spread_of(layer));
  }
  return size;
}

void set_transfers(const std::vector<TransferSamples>& samples, Profile& profile) {
  profile.transfer_latency = profile.cluster.inside.latency;
  profile.transfer_bytes_per_second = profile.cluster.inside.bytes_per_second;
  if (samples.empty()) return;
  Samples issue;
  for (const TransferSamples& one : samples)
    issue.insert(issue.end(), one.issue.begin(), one.issue.end());
  profile.transfer_issue = Nanoseconds(std::llround(typical_ns(issue)));
  const auto [least, most] =
      std::ranges::minmax(samples, {}, [](const TransferSamples& one) { return one.bytes; });
  const double ns = typical_ns(most.way) - typical_ns(least.way);
  const auto bytes = static_cast<double>(most.bytes - least.bytes);
  if (ns > 0 && bytes > 0) profile.transfer_bytes_per_second = bytes / ns * 1e9;
  const double moving = static_cast<double>(least.bytes) / profile.transfer_bytes_per_second * 1e9;
  profile.transfer_latency =
      Nanoseconds(std::max<std::int64_t>(0, std::llround(typical_ns(least.way) - moving)));
}

}  // namespace

ProfileSamples read_profile_samples(const JsonCursor& document) {
  document.only({"model_name", "cluster", "ranks_measured", "repeats", "sizes", "transfers"});
  ProfileSamples samples;
  samples.model_name = read_name(document.at("model_name"));
  samples.cluster = read_cluster(document.at("cluster"));
  samples.ranks_measured = read_count(document.at("ranks_measured"), 1, kMostRanksAtOnce);
  samples.repeats = read_count(document.at("repeats"), 1, kMostRepeatsSampled);
  for (const JsonCursor& size : document.at("sizes").elements())
    samples.sizes.push_back(read_size_samples(size));
  if (samples.sizes.empty()) document.at("sizes").fail("at least one micro-batch size");
  const auto transfers = document.find("transfers");
  if (!transfers) return samples;
  for (const JsonCursor& one : transfers->elements()) {
    one.only({"bytes", "issue", "way"});
    samples.transfers.push_back({one.at("bytes").integer(0, kMostMessageBytes),
                                 read_samples(one, "issue"), read_samples(one, "way")});
    if (samples.transfers.back().way.empty()) one.fail("at least one way");
  }
  return samples;
}

Profile profile_from(const ProfileSamples& samples) {
  Profile profile;
  profile.model_name = samples.model_name;
  profile.cluster = samples.cluster;
  profile.ranks_measured = samples.ranks_measured;
  profile.repeats = samples.repeats;
  profile.clock = kClock;
  double overhead = 0;
  for (const SizeSamples& size : samples.sizes) profile.sizes.push_back(size_of(size, overhead));
  profile.action_overhead =
      Nanoseconds(std::llround(overhead / static_cast<double>(samples.sizes.size())));
  set_transfers(samples.transfers, profile);
  return profile;
}

}  // namespace pipewright
