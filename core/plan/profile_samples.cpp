#include "core/plan/profile_samples.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "core/base/json_fields.hpp"

namespace pipewright {
namespace {

constexpr ProfileClock kClock = ProfileClock::Wall;
constexpr int kMostRanksAtOnce = 65536, kMostRepeatsSampled = 1'000'000;
constexpr int kMostActionsSampled = 1'000'000'000;
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
  value.only({"micro_batch_size", "layers", "whole", "outside", "length"});
  SizeSamples size;
  if (const auto length = value.find("length"))
    size.length = read_count(*length, 1, kLongestSample);
  size.micro_batch_size = read_count(value.at("micro_batch_size"), 1, kMostMicroBatchSize);
  for (const JsonCursor& layer : value.at("layers").elements())
    size.layers.push_back(read_stage_times(layer));
  if (size.layers.empty()) value.at("layers").fail("at least one layer");
  size.whole = read_stage_times(value.at("whole"));
  for (const JsonCursor& one : value.at("outside").elements()) {
    one.only({"actions", "ns"});
    size.outside.push_back(
        {read_count(one.at("actions"), 1, kMostActionsSampled), read_samples(one, "ns")});
    if (size.outside.back().ns.empty()) one.fail("at least one time");
  }
  return size;
}

double typical_ns(const Samples& samples) {
  return samples.empty() ? 0 : static_cast<double>(typical(distribution_of(samples), kClock).value);
}

/// Of transfers, whose draws are not simulated: one in ten or twenty waits for a core for
/// milliseconds, and a step has many.
double mean_ns(const Samples& samples) {
  return samples.empty() ? 0 : static_cast<double>(distribution_of(samples).mean.value);
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

/// What the runtime takes beside the actions, in ns.
struct Overheads {
  double action = 0, step = 0;
};

/// The line through the steps of the fewest and of the most actions, neither part below 0.
Overheads outside_of(const std::vector<OutsideSamples>& samples) {
  if (samples.empty()) return {};
  const auto [fewest, most] =
      std::ranges::minmax(samples, {}, [](const OutsideSamples& one) { return one.actions; });
  const double least = typical_ns(fewest.ns), more = most.actions - fewest.actions;
  const double each = more > 0 ? (typical_ns(most.ns) - least) / more : 0;
  const double action = std::clamp(each, 0.0, least / fewest.actions);
  return {action, least - action * fewest.actions};
}

/// Adds what it found to the overheads and the times of an action's own.
ProfileSize size_of(const SizeSamples& samples, Overheads& outside, double& fixed_of_all) {
  const double fixed =
      std::midpoint(fixed_ns(samples, &StageTimes::f), fixed_ns(samples, &StageTimes::b));
  const Overheads found = outside_of(samples.outside);
  outside.action += found.action;
  outside.step += found.step;
  fixed_of_all += fixed;
  ProfileSize size;
  size.micro_batch_size = samples.micro_batch_size;
  for (const StageTimes& layer : samples.layers) {
    size.layers.push_back(layer_of(layer, fixed));
    size.spreads.push_back(spread_of(layer));
  }
  return size;
}

void set_transfers(const std::vector<TransferSamples>& samples, Nanoseconds own_time,
                   Profile& profile) {
  profile.transfer_latency = profile.cluster.inside.latency;
  profile.transfer_bytes_per_second = profile.cluster.inside.bytes_per_second;
  if (samples.empty()) return;
  Samples issue;
  for (const TransferSamples& one : samples)
    issue.insert(issue.end(), one.issue.begin(), one.issue.end());
  profile.transfer_issue = Nanoseconds(std::llround(mean_ns(issue))) + own_time;
  const auto [least, most] =
      std::ranges::minmax(samples, {}, [](const TransferSamples& one) { return one.bytes; });
  const double ns = mean_ns(most.way) - mean_ns(least.way);
  const auto bytes = static_cast<double>(most.bytes - least.bytes);
  if (ns > 0 && bytes > 0) profile.transfer_bytes_per_second = bytes / ns * 1e9;
  const double moving = static_cast<double>(least.bytes) / profile.transfer_bytes_per_second * 1e9;
  profile.transfer_latency =
      Nanoseconds(std::max<std::int64_t>(0, std::llround(mean_ns(least.way) - moving)));
}

}  // namespace

ProfileSamples read_profile_samples(const JsonCursor& document) {
  document.only(
      {"model_name", "cluster", "ranks_measured", "repeats", "sizes", "transfers", "length"});
  ProfileSamples samples;
  samples.model_name = read_name(document.at("model_name"));
  samples.cluster = read_cluster(document.at("cluster"));
  samples.ranks_measured = read_count(document.at("ranks_measured"), 1, kMostRanksAtOnce);
  samples.repeats = read_count(document.at("repeats"), 1, kMostRepeatsSampled);
  for (const JsonCursor& size : document.at("sizes").elements())
    samples.sizes.push_back(read_size_samples(size));
  if (const auto length = document.find("length"))
    samples.length = read_count(*length, 1, kLongestSample);
  if (std::ranges::none_of(samples.sizes,
                           [&](const SizeSamples& size) { return size.length == samples.length; }))
    document.at("sizes").fail("at least one micro-batch size, with samples of the usual length");
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
  Overheads outside;
  double fixed = 0;
  std::map<int, std::vector<ProfileSize>> by_length;
  for (const SizeSamples& size : samples.sizes)
    by_length[size.length].push_back(size_of(size, outside, fixed));
  profile.sizes = std::move(by_length.extract(samples.length).mapped());
  for (auto& [length, sizes] : by_length) profile.lengths.push_back({length, std::move(sizes)});
  if (!profile.lengths.empty()) profile.length = samples.length;
  const auto mean = [&](double sum) {
    return Nanoseconds(std::llround(sum / static_cast<double>(samples.sizes.size())));
  };
  profile.action_overhead = mean(outside.action + fixed);
  profile.step_overhead = mean(outside.step);
  set_transfers(samples.transfers, mean(outside.action), profile);
  return profile;
}

}  // namespace pipewright
