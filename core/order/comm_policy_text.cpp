#include "core/order/comm_policy_text.hpp"

namespace pipewright {

std::string policy_text(const CommPolicy& policy, std::string_view name) {
  std::string text = std::string(name.empty() ? name_of(policy) : name) + " (" +
                     std::string(to_string(policy.issue));
  if (policy.issue == Issue::Stream) text += ", " + std::string(to_string(policy.channel));
  text += ", " + std::string(to_string(policy.post)) + ", " + to_string(policy.send_f);
  if (policy.send_b != policy.send_f) text += " for activations, " + to_string(policy.send_b);
  if (policy.send_b != policy.send_f) text += " for gradients";
  if (policy.run_order == RunOrder::EvenOdd) text += ", even-odd";
  if (policy.connect == Connect::FirstUse) text += ", connections made at first use";
  if (policy.buffers == Buffers::Registered) text += ", registered buffers";
  if (policy.batches != Batches::Apart)
    text += ", " + std::string(to_string(policy.batches)) + " batches";
  if (policy.in_flight > 0) text += ", " + std::to_string(policy.in_flight) + " in flight";
  if (policy.device_queues > 0) {
    text += ", " + std::to_string(policy.device_queues) +
            (policy.device_queues == 1 ? " device queue" : " device queues");
  }
  return text + ")";
}

}  // namespace pipewright
