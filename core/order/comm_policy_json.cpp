#include "core/order/comm_policy_json.hpp"

#include "core/base/json_fields.hpp"

namespace pipewright {

namespace {

CommPolicy read_preset(const JsonCursor& name) {
  return parsed_at(name, [&] { return comm_policy_preset(name.string()); });
}

template <class Field>
void read_field(const JsonCursor& object, std::string_view key, Field (*parse)(std::string_view),
                Field& field) {
  if (const auto value = object.find(key)) {
    field = parsed_at(*value, [&] { return parse(value->string()); });
  }
}

}  // namespace

CommPolicy read_comm_policy(const JsonCursor& value) {
  if (value.value().is_string()) {
    return read_preset(value);
  }
  value.only({"preset", "issue", "channel", "post", "run_order", "send_f", "send_b", "connect",
              "buffers", "in_flight", "batches", "device_queues"});
  CommPolicy policy;
  if (const auto preset = value.find("preset")) {
    policy = read_preset(*preset);
  }
  read_field(value, "issue", parse_issue, policy.issue);
  read_field(value, "channel", parse_channel, policy.channel);
  read_field(value, "post", parse_post, policy.post);
  read_field(value, "run_order", parse_run_order, policy.run_order);
  read_field(value, "send_f", parse_protocol, policy.send_f);
  read_field(value, "send_b", parse_protocol, policy.send_b);
  read_field(value, "connect", parse_connect, policy.connect);
  read_field(value, "buffers", parse_buffers, policy.buffers);
  read_field(value, "batches", parse_batches, policy.batches);
  if (const auto limit = value.find("in_flight")) {
    policy.in_flight = static_cast<int>(limit->integer(0, kMostInFlight));
  }
  if (const auto queues = value.find("device_queues")) {
    policy.device_queues = static_cast<int>(queues->integer(0, kMostDeviceQueues));
  }
  return policy;
}

Json to_json(const CommPolicy& policy) {
  Json json = {{"issue", to_string(policy.issue)},   {"channel", to_string(policy.channel)},
               {"post", to_string(policy.post)},     {"run_order", to_string(policy.run_order)},
               {"send_f", to_string(policy.send_f)}, {"send_b", to_string(policy.send_b)}};
  if (policy.connect != Connect::Ready) json["connect"] = to_string(policy.connect);
  if (policy.buffers != Buffers::Plain) json["buffers"] = to_string(policy.buffers);
  if (policy.in_flight != 0) json["in_flight"] = policy.in_flight;
  if (policy.batches != Batches::Apart) json["batches"] = to_string(policy.batches);
  if (policy.device_queues != 0) json["device_queues"] = policy.device_queues;
  return json;
}

}  // namespace pipewright
