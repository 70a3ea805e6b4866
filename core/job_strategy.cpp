#include "core/job_strategy.hpp"

#include <array>

#include "core/comm_policy_json.hpp"
#include "core/error.hpp"
#include "core/json_fields.hpp"

namespace pipewright {

namespace {

constexpr std::array<std::string_view, 9> kFields{
    "pp_degree",        "dp_degree",     "vpp_degree",  "accumulate_steps",
    "micro_batch_size", "schedule_mode", "comm_policy", "enable_send_recv_overlap",
    "memory_limit"};

/// Degrees beside those that are searched or fixed by a list.
constexpr std::array<std::string_view, 2> kOtherDegrees{"mp_degree", "sharding_degree"};

/// Fields of Paddle's pipeline strategy that have no counterpart here.
constexpr std::array<std::string_view, 7> kUnusedFields{
    "vpp_seg_method",    "generation_batch_size", "job_schedule_profiler_start",
    "split_backward",    "program_runtimes",      "job_schedule_profiler_stop",
    "memory_limit_times"};

/// The fields of "strategy" and of "strategy.pipeline" as one set.
class Fields {
 public:
  explicit Fields(const JsonCursor& strategy)
      : outer_(strategy), inner_(strategy.find("pipeline")) {
    std::vector<std::string_view> known(kFields.begin(), kFields.end());
    known.insert(known.end(), kOtherDegrees.begin(), kOtherDegrees.end());
    refuse_unused(outer_);
    known.push_back("pipeline");
    outer_.only(known);
    if (inner_) {
      refuse_unused(*inner_);
      known.back() = "enable";
      inner_->only(known);
      check_enable();
    }
  }

  std::optional<JsonCursor> find(std::string_view key) const {
    const std::optional<JsonCursor> value = outer_.find(key);
    const std::optional<JsonCursor> inner = inner_ ? inner_->find(key) : std::nullopt;
    if (value && inner) {
      throw InputError(inner->file(), inner->pointer(),
                       "stands at " + value->pointer() + " too; keep one of them");
    }
    return value ? value : inner;
  }

 private:
  static void refuse_unused(const JsonCursor& object) {
    for (std::string_view key : kUnusedFields) {
      if (const auto field = object.find(key)) {
        throw InputError(field->file(), field->pointer(),
                         "Paddle has this field, but Pipewright makes no use of it; remove it");
      }
    }
  }

  void check_enable() const {
    const auto enable = inner_->find("enable");
    if (enable && !enable->boolean()) {
      throw InputError(enable->file(), enable->pointer(),
                       "expected true; for a run without a pipeline set \"pp_degree\" to 1");
    }
  }

  JsonCursor outer_;
  std::optional<JsonCursor> inner_;
};

/// "auto", one value, or a list of values to try.
template <class ReadOne>
Choice read_alternatives(const Fields& fields, std::string_view key, ReadOne read_one) {
  const auto value = fields.find(key);
  if (!value || (value->value().is_string() && value->string() == "auto")) {
    return {};
  }
  if (!value->value().is_array()) {
    return {read_one(*value)};
  }
  Choice choice;
  for (const JsonCursor& element : value->elements()) {
    choice.push_back(read_one(element));
  }
  if (choice.empty()) {
    value->fail("\"auto\", a value, or a list with at least one");
  }
  return choice;
}

Choice read_numbers(const Fields& fields, std::string_view key, int most) {
  return read_alternatives(fields, key, [&](const JsonCursor& value) {
    if (!value.value().is_number()) {
      value.fail("\"auto\", a whole number from 1 to " + std::to_string(most) +
                 ", or a list of them");
    }
    return std::to_string(value.integer(1, most));
  });
}

void read_policy(const Fields& fields, Strategy& strategy) {
  if (const auto policy = fields.find("comm_policy")) {
    strategy.policy = read_comm_policy(*policy);
  }
  if (const auto overlap = fields.find("enable_send_recv_overlap")) {
    if (strategy.policy) {
      throw InputError(overlap->file(), overlap->pointer(),
                       "says how transfers are issued, and so does \"comm_policy\"; keep one");
    }
    // Without overlap Paddle waits for the compute stream before a send and for the send after it:
    // the transfer occupies the compute lane.
    strategy.policy.emplace();
    strategy.policy->issue = overlap->boolean() ? Issue::Stream : Issue::Inline;
  }
}

void check_mp_degree(const Fields& fields) {
  const auto degree = fields.find("mp_degree");
  if (degree && degree->integer(1, 65536) != 1) {
    degree->fail("1, because only pipeline and data parallelism are planned");
  }
}

/// Replicas as dp_degree makes them, which divide the optimizer's state (ZeRO stage 1).
void read_sharding(const Fields& fields, Strategy& strategy) {
  const auto degree = fields.find("sharding_degree");
  if (!degree) return;
  strategy.sharding_degree = static_cast<int>(degree->integer(1, 65536));
  if (strategy.sharding_degree == 1) return;
  const bool alone = strategy.dp_degree.empty() || strategy.dp_degree == Choice{"1"};
  if (!alone) {
    throw InputError(degree->file(), degree->pointer(),
                     "replicas are either sharded or not: leave out dp_degree, or say 1 there");
  }
  strategy.dp_degree = {std::to_string(strategy.sharding_degree)};
}

Bytes read_memory_limit(const JsonCursor& value) {
  if (!value.value().is_string()) {
    return read_size(value);
  }
  const Bytes limit = parsed_at(value, [&] { return parse_bytes(value.string(), "memory limit"); });
  if (limit.value < 0) {
    value.fail("a size that is not negative");
  }
  return limit;
}

Json numbers_json(const Choice& choice) {
  if (choice.empty()) {
    return "auto";
  }
  Json list = Json::array();
  for (const std::string& value : choice) {
    list.push_back(std::stoll(value));
  }
  return list.size() == 1 ? Json(list.front()) : list;
}

Json words_json(const Choice& choice) {
  if (choice.empty()) {
    return "auto";
  }
  return choice.size() == 1 ? Json(choice.front()) : Json(choice);
}

}  // namespace

Strategy read_strategy(const JsonCursor& value) {
  const Fields fields(value);
  Strategy strategy;
  strategy.pp_degree = read_numbers(fields, "pp_degree", 65536);
  strategy.dp_degree = read_numbers(fields, "dp_degree", 65536);
  strategy.vpp_degree = read_numbers(fields, "vpp_degree", 65535);
  strategy.accumulate_steps = read_numbers(fields, "accumulate_steps", 1 << 20);
  strategy.micro_batch_size = read_numbers(fields, "micro_batch_size", 65536);
  strategy.schedule_mode = read_alternatives(fields, "schedule_mode", read_name);
  read_policy(fields, strategy);
  check_mp_degree(fields);
  read_sharding(fields, strategy);
  if (const auto limit = fields.find("memory_limit")) {
    strategy.memory_limit = read_memory_limit(*limit);
  }
  return strategy;
}

Json to_json(const Strategy& strategy) {
  Json json = Json::object();
  json["pp_degree"] = numbers_json(strategy.pp_degree);
  const bool sharded = strategy.sharding_degree > 1;
  json["dp_degree"] = sharded ? Json(1) : numbers_json(strategy.dp_degree);
  json["sharding_degree"] = strategy.sharding_degree;
  json["vpp_degree"] = numbers_json(strategy.vpp_degree);
  json["accumulate_steps"] = numbers_json(strategy.accumulate_steps);
  json["micro_batch_size"] = numbers_json(strategy.micro_batch_size);
  json["schedule_mode"] = words_json(strategy.schedule_mode);
  if (strategy.policy) {
    json["comm_policy"] = to_json(*strategy.policy);
  }
  json["memory_limit"] = strategy.memory_limit.value;
  return json;
}

}  // namespace pipewright
