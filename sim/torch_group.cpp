#include "sim/torch_group.hpp"

#include <charconv>
#include <optional>

#include "core/base/error.hpp"

namespace pipewright::sim {
namespace {

// The source of 2.10 to 2.15 was read, of 2.13 run; 2.9 issues its transfers as 2.10 does.
constexpr TorchVersion kOldest{2, 9}, kNewest{2, 15};
/// Transfers of one kind leave one by one (pull request 175712).
constexpr TorchVersion kSingleTransfers{2, 12};
constexpr TorchVersion kPerDirection{2, 14}, kPerEdge{2, 15};

std::optional<int> leading_number(std::string_view& text) {
  int number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return number;
}

std::optional<TorchVersion> version_in(std::string_view release) {
  const auto major = leading_number(release);
  if (!major || release.empty() || release.front() != '.') return std::nullopt;
  release.remove_prefix(1);
  const auto minor = leading_number(release);
  if (!minor) return std::nullopt;
  return TorchVersion{*major, *minor};
}

void require_from(const TorchVersion& version, const TorchVersion& first, bool asked,
                  std::string_view release, const char* what) {
  if (!asked || version >= first) return;
  throw InputError("PyTorch " + std::string(release) + " has no " + what + ", which came with " +
                   std::to_string(first.major) + "." + std::to_string(first.minor) +
                   "; leave it out");
}

}  // namespace

TorchVersion known_torch_version(std::string_view release) {
  const auto version = version_in(release);
  if (version && *version >= kOldest && *version <= kNewest) return *version;
  throw InputError("how PyTorch " + std::string(release) +
                   " sends is not known here: releases 2.9 to 2.15 are; name a policy for check() "
                   "instead, or install one of these");
}

std::string_view torch_preset(const TorchGroup& group) {
  const TorchVersion version = known_torch_version(group.release);
  require_from(version, kPerDirection, group.per_direction, group.release,
               "communicators by direction");
  require_from(version, kPerEdge, group.per_edge, group.release, "communicators by edge");
  if (group.backend == "gloo") return "torch-gloo";
  if (group.backend != "nccl") {
    throw InputError("how the back end \"" + group.backend +
                     "\" orders transfers is not known here: gloo and nccl are; name a policy for "
                     "check() instead");
  }
  if (group.per_edge) return "torch-2.15-per-edge";
  if (group.per_direction) return "torch-2.14-per-direction";
  if (version < kSingleTransfers) return "torch-2.11";
  return group.eager ? "torch-2.12-eager" : "torch-2.12-lazy";
}

}  // namespace pipewright::sim
