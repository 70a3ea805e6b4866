#include "core/order/sharding.hpp"

#include "core/base/most_devices.hpp"

namespace pipewright {

std::string set_field(std::string_view name, std::int64_t value, Sharding& sharding) {
  if (name == "zero") {
    if (value < 1 || value > 3) return "ZeRO has the stages 1, 2 and 3";
    sharding.zero = static_cast<int>(value);
    return "";
  }
  if (name == "groups") {
    if (value < 1 || value > kMostDevices)
      return "replicas form 1 to " + std::to_string(kMostDevices) + " groups";
    sharding.groups = static_cast<int>(value);
    return "";
  }
  return "\"" + std::string(name) +
         "\" says nothing about what replicas divide; write zero or groups";
}

std::string to_string(const Sharding& sharding) {
  std::string text;
  if (sharding.zero > 0) text = "zero=" + std::to_string(sharding.zero);
  if (sharding.groups > 1)
    text += (text.empty() ? "groups=" : " groups=") + std::to_string(sharding.groups);
  return text;
}

int group_of(const Sharding& sharding, int replica, int replicas) {
  return static_cast<int>(std::int64_t{replica} * sharding.groups / replicas);
}

}  // namespace pipewright
