// profile.json: reading and writing.
#include "core/plan/profile.hpp"

#include <algorithm>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"
#include "core/model/expert_fold.hpp"
#include "core/plan/ring_json.hpp"

namespace pipewright {

namespace {

constexpr int kMostProfiledLayers = 4096, kMostRanksMeasured = 65536;

const std::vector<std::pair<std::string_view, ProfileClock>> kClocks = {
    {"wall", ProfileClock::Wall}, {"cpu", ProfileClock::Cpu}};
constexpr double kMostNsPerByte = 1e6;

/// One of the keys of "spread": not measured where it is not there.
Distribution read_spread(const JsonCursor& spread, const char* key) {
  const auto found = spread.find(key);
  return found ? read_distribution(*found) : Distribution{};
}

void read_spread(const JsonCursor& owner, ProfileSize& size) {
  const auto found = owner.find("spread");
  if (!found) return;
  found->only({"f", "i", "w", "opt", "b"});
  size.spreads.push_back({read_spread(*found, "f"), read_spread(*found, "i"),
                          read_spread(*found, "w"), read_spread(*found, "opt"),
                          read_spread(*found, "b")});
}

LayerTimes read_layer_times(const JsonCursor& value) {
  value.only({"f_ns", "i_ns", "w_ns", "b_ns", "opt_ns", "spread"});
  LayerTimes times{read_duration(value.at("f_ns")), read_duration(value.at("i_ns")),
                   read_duration(value.at("w_ns")), read_duration(value.at("opt_ns"))};
  if (const auto b = value.find("b_ns")) times.saved_by_b = times.b() - read_duration(*b);
  return times;
}

/// The loss stands by itself in measurements of whole layers alone.
ProfileSize read_profile_size(const JsonCursor& value, bool has_loss) {
  value.only(
      has_loss ? std::vector<std::string_view>{"micro_batch_size", "layers", "loss", "message_copy"}
               : std::vector<std::string_view>{"micro_batch_size", "layers", "message_copy"});
  ProfileSize size;
  size.micro_batch_size = read_count(value.at("micro_batch_size"), 1, kMostMicroBatchSize);
  const JsonCursor layers = value.at("layers");
  for (const JsonCursor& layer : layers.elements()) {
    size.layers.push_back(read_layer_times(layer));
    read_spread(layer, size);
  }
  if (size.layers.empty() || size.layers.size() > static_cast<std::size_t>(kMostProfiledLayers)) {
    layers.fail("1 to 4096 layers");
  }
  if (has_loss) {
    const JsonCursor loss = value.at("loss");
    loss.only({"f_ns", "i_ns"});
    size.loss.f = read_duration(loss.at("f_ns"));
    size.loss.i = read_duration(loss.at("i_ns"));
  }
  if (!size.spreads.empty() && size.spreads.size() != size.layers.size()) {
    layers.fail("a spread in each of the layers, or in none");
  }
  if (const auto copy = value.find("message_copy")) {
    copy->only({"f_ns_per_byte", "i_ns_per_byte"});
    size.f_ns_per_message_byte = copy->at("f_ns_per_byte").number(0, kMostNsPerByte);
    size.i_ns_per_message_byte = copy->at("i_ns_per_byte").number(0, kMostNsPerByte);
  }
  return size;
}

std::vector<ProfileSize> read_sizes(const JsonCursor& list, bool has_loss) {
  std::vector<ProfileSize> sizes;
  for (const JsonCursor& element : list.elements()) {
    ProfileSize size = read_profile_size(element, has_loss);
    if (!sizes.empty()) {
      const ProfileSize& before = sizes.back();
      if (size.micro_batch_size <= before.micro_batch_size) {
        element.at("micro_batch_size")
            .fail("more than " + std::to_string(before.micro_batch_size) +
                  ", because sizes ascend");
      }
      if (size.layers.size() != before.layers.size()) {
        element.at("layers").fail("as many layers as the first size has, " +
                                  std::to_string(before.layers.size()));
      }
    }
    sizes.push_back(std::move(size));
  }
  if (sizes.empty()) {
    list.fail("at least one micro-batch size");
  }
  return sizes;
}

/// Of the micro-batch sizes and layers of `whole`.
DividedProfile read_divided(const JsonCursor& value, const std::vector<ProfileSize>& whole) {
  value.only({"tp", "cp", "cp_comm_type", "ep", "etp", "sequence_parallel", "replicas",
              "ranks_measured", "sizes"});
  const auto degree = [&](const char* key) {
    const auto found = value.find(key);
    return found ? read_count(*found, 1, kMostRanksMeasured) : 1;
  };
  DividedProfile divided;
  const auto rows = value.find("sequence_parallel");
  const StageDivision ranks{.tensor = degree("tp"),
                            .rows = rows && rows->boolean(),
                            .context = degree("cp"),
                            .ring = read_ring(value, degree("cp"))};
  const auto each = value.find("etp");
  divided.ranks = division_with_experts(ranks, degree("ep"), each ? read_count(*each, 1, 1) : 0);
  if (each && !divided.ranks.folds_experts())
    each->fail(
        "1 beside sequence parallelism and an ep that is tp, or a multiple of tp * cp; else "
        "leave it out");
  divided.replicas = degree("replicas");
  if (divided.ranks == StageDivision{} && divided.replicas == 1)
    value.fail("a tp, a cp, an ep or replicas of more than 1");
  divided.ranks_measured = read_count(value.at("ranks_measured"), 1, kMostRanksMeasured);
  divided.sizes = read_sizes(value.at("sizes"), false);
  const bool is_alike =
      std::ranges::equal(divided.sizes, whole, [](const ProfileSize& a, const ProfileSize& b) {
        return a.micro_batch_size == b.micro_batch_size && a.layers.size() == b.layers.size();
      });
  if (!is_alike) value.at("sizes").fail("the micro-batch sizes and layers of the whole profile");
  return divided;
}

void read_divided(const JsonCursor& list, Profile& profile) {
  for (const JsonCursor& element : list.elements()) {
    DividedProfile divided = read_divided(element, profile.sizes);
    const DividedProfile* before = find_divided(profile, divided.ranks, divided.replicas);
    if (before != nullptr && before->replicas == divided.replicas)
      element.fail("another division, or other replicas, than those before it");
    profile.divided.push_back(std::move(divided));
  }
}

void read_lengths(const JsonCursor& list, Profile& profile) {
  int before = 0;
  for (const JsonCursor& element : list.elements()) {
    element.only({"length", "sizes"});
    ProfileLength one{read_count(element.at("length"), 1, kLongestSample),
                      read_sizes(element.at("sizes"), false)};
    if (one.length <= before || one.length == profile.length)
      element.at("length").fail("more than " + std::to_string(before) +
                                ", because lengths ascend, and not " +
                                std::to_string(profile.length) + ", which \"sizes\" has");
    before = one.length;
    for (const ProfileSize& size : one.sizes) {
      const bool is_known = std::ranges::any_of(profile.sizes, [&](const ProfileSize& whole) {
        return whole.micro_batch_size == size.micro_batch_size &&
               whole.layers.size() == size.layers.size();
      });
      if (!is_known)
        element.at("sizes").fail(
            "some of the micro-batch sizes of the profile, with as many layers");
    }
    profile.lengths.push_back(std::move(one));
  }
}

Json spread_json(const LayerSpread& spread) {
  Json json = Json::object();
  for (const auto& [key, distribution] : {std::pair{"f", &spread.f},
                                          {"i", &spread.i},
                                          {"w", &spread.w},
                                          {"opt", &spread.opt},
                                          {"b", &spread.b}}) {
    if (distribution->count > 0) json[key] = to_json(*distribution);
  }
  return json;
}

Json layer_times_json(const LayerTimes& times) {
  Json json = {{"f_ns", times.f.value},
               {"i_ns", times.i.value},
               {"w_ns", times.w.value},
               {"opt_ns", times.opt.value}};
  if (times.saved_by_b != Nanoseconds(0)) json["b_ns"] = times.b().value;
  return json;
}

Json size_json(const ProfileSize& size, bool has_loss) {
  Json layers = Json::array();
  for (const LayerTimes& layer : size.layers) layers.push_back(layer_times_json(layer));
  if (!size.spreads.empty()) {
    for (std::size_t l = 0; l < size.layers.size(); ++l)
      layers[l]["spread"] = spread_json(size.spreads[l]);
  }
  Json json = {{"micro_batch_size", size.micro_batch_size},
               {"layers", std::move(layers)},
               {"message_copy",
                {{"f_ns_per_byte", size.f_ns_per_message_byte},
                 {"i_ns_per_byte", size.i_ns_per_message_byte}}}};
  if (has_loss) json["loss"] = {{"f_ns", size.loss.f.value}, {"i_ns", size.loss.i.value}};
  return json;
}

Json sizes_json(const std::vector<ProfileSize>& sizes, bool has_loss) {
  Json json = Json::array();
  for (const ProfileSize& size : sizes) json.push_back(size_json(size, has_loss));
  return json;
}

Json divided_json(const DividedProfile& divided) {
  Json json = {{"tp", divided.ranks.tensor},
               {"ep", divided.ranks.expert_holders()},
               {"ranks_measured", divided.ranks_measured},
               {"sizes", sizes_json(divided.sizes, false)}};
  if (divided.ranks.context > 1) json["cp"] = divided.ranks.context;
  if (divided.ranks.ring) json["cp_comm_type"] = "p2p";
  if (divided.ranks.rows) json["sequence_parallel"] = true;
  if (divided.ranks.folds_experts()) json["etp"] = 1;
  if (divided.replicas > 1) json["replicas"] = divided.replicas;
  return json;
}

}  // namespace

const DividedProfile* find_divided(const Profile& profile, const StageDivision& ranks,
                                   int replicas) {
  const DividedProfile* nearest = nullptr;
  for (const DividedProfile& one : profile.divided) {
    if (one.ranks == ranks && one.replicas <= replicas &&
        (nearest == nullptr || one.replicas > nearest->replicas))
      nearest = &one;
  }
  return nearest;
}

bool has_spreads(const Profile& profile) {
  const auto all = [](const std::vector<ProfileSize>& sizes) {
    return std::ranges::none_of(sizes,
                                [](const ProfileSize& size) { return size.spreads.empty(); });
  };
  return all(profile.sizes) && std::ranges::all_of(profile.divided, all, &DividedProfile::sizes);
}

Nanoseconds typical(const Distribution& measured, ProfileClock clock) {
  return clock == ProfileClock::Cpu ? measured.middle_mean() : measured.median();
}

Profile read_profile(const JsonCursor& document) {
  require_schema(document, "profile");
  document.only({"schema", "model_name", "cluster", "ranks_measured", "repeats", "clock",
                 "transfer", "action_overhead_ns", "step_overhead_ns", "sizes", "length", "lengths",
                 "divided"});
  Profile profile;
  profile.model_name = read_name(document.at("model_name"));
  profile.cluster = read_cluster(document.at("cluster"));
  profile.ranks_measured = read_count(document.at("ranks_measured"), 1, kMostRanksMeasured);
  profile.repeats = read_count(document.at("repeats"), 1, 1'000'000);
  if (const auto clock = document.find("clock")) profile.clock = read_choice(*clock, kClocks);
  const JsonCursor transfer = document.at("transfer");
  transfer.only({"latency_ns", "bytes_per_second", "issue_ns"});
  profile.transfer_latency = read_duration(transfer.at("latency_ns"));
  profile.transfer_bytes_per_second = transfer.at("bytes_per_second").number(1, 1e18);
  if (const auto issue = transfer.find("issue_ns")) profile.transfer_issue = read_duration(*issue);
  profile.action_overhead = read_duration(document.at("action_overhead_ns"));
  if (const auto step = document.find("step_overhead_ns"))
    profile.step_overhead = read_duration(*step);
  profile.sizes = read_sizes(document.at("sizes"), true);
  if (const auto length = document.find("length"))
    profile.length = read_count(*length, 1, kLongestSample);
  if (const auto lengths = document.find("lengths")) read_lengths(*lengths, profile);
  if (const auto divided = document.find("divided")) read_divided(*divided, profile);
  return profile;
}

Json to_json(const Profile& profile) {
  Json json = {{"schema", "pipewright.profile/1"},
               {"model_name", profile.model_name},
               {"cluster", to_json(profile.cluster)},
               {"ranks_measured", profile.ranks_measured},
               {"repeats", profile.repeats},
               {"clock", profile.clock == ProfileClock::Cpu ? "cpu" : "wall"},
               {"transfer",
                {{"latency_ns", profile.transfer_latency.value},
                 {"bytes_per_second", profile.transfer_bytes_per_second}}},
               {"action_overhead_ns", profile.action_overhead.value},
               {"sizes", sizes_json(profile.sizes, true)}};
  if (profile.transfer_issue != Nanoseconds(0))
    json["transfer"]["issue_ns"] = profile.transfer_issue.value;
  if (profile.step_overhead != Nanoseconds(0))
    json["step_overhead_ns"] = profile.step_overhead.value;
  if (profile.length > 0) json["length"] = profile.length;
  for (const ProfileLength& one : profile.lengths)
    json["lengths"].push_back({{"length", one.length}, {"sizes", sizes_json(one.sizes, false)}});
  for (const DividedProfile& divided : profile.divided)
    json["divided"].push_back(divided_json(divided));
  return json;
}

}  // namespace pipewright
