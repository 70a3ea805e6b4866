#include "tools/output/policy_matrix_text.hpp"

#include <algorithm>
#include <array>

#include "sim/policy_matrix.hpp"
#include "tools/cli/table.hpp"

namespace pipewright::tools {
namespace {

using sim::LeastCredit;
using sim::PolicyVerdict;

constexpr std::array<Post, 3> kPosts = {Post::Early, Post::Deferred, Post::AtStart};
constexpr std::array<std::string_view, 3> kProtocols = {"rendezvous", "eager:1", "eager"};
constexpr std::size_t kLabel = 17, kCell = 6;  // columns; nine cells and a gap stay below 80

/// Four letters, so that nine of them stand in a narrow terminal.
std::string_view short_verdict(Verdict verdict) {
  switch (verdict) {
    case Verdict::Ok:
      return "ok";
    case Verdict::Deadlock:
      return "DEAD";
    case Verdict::Mismatch:
      return "SWAP";
    case Verdict::Invalid:
      return "ends";
  }
  return "ok";
}

std::string padded(std::string_view text, std::size_t width) {
  std::string result(text);
  result.append(width > text.size() ? width - text.size() : 0, ' ');
  return result;
}

/// The channel has a meaning under stream only.
std::string channel_text(const CommPolicy& policy) {
  return policy.issue == Issue::Stream ? std::string(to_string(policy.channel)) : "-";
}

/// Seventeen columns: "stream   edge", "stream direction".
std::string row_label(const CommPolicy& policy) {
  const std::string channel = channel_text(policy);
  const std::size_t first = std::min<std::size_t>(9, kLabel - 1 - channel.size());
  return padded(padded(to_string(policy.issue), first) + channel, kLabel);
}

std::string heading() {
  std::string first = padded("", kLabel), second = padded("issue", 9) + padded("channel", 8);
  for (const auto protocol : kProtocols) {
    first += padded(protocol, kCell * kPosts.size() + 1);
    for (const auto post : {"early", "defer", "start"}) second += padded(post, kCell);
    second += ' ';
  }
  for (std::string* line : {&first, &second}) line->erase(line->find_last_not_of(' ') + 1);
  return first + "\n" + second + "\n";
}

std::string cell_text(const std::vector<PolicyVerdict>& matrix, const CommPolicy& row,
                      std::string_view protocol, Post post, const Terminal& terminal) {
  const auto found = std::find_if(matrix.begin(), matrix.end(), [&](const PolicyVerdict& each) {
    return each.preset.empty() && each.policy.issue == row.issue &&
           each.policy.channel == row.channel && each.policy.post == post &&
           to_string(each.policy.send_f) == protocol;
  });
  if (found == matrix.end()) return padded("-", kCell);
  const std::string_view text = short_verdict(found->verdict);
  return painted(terminal, found->verdict == Verdict::Ok ? Ink::Green : Ink::Red, text) +
         padded("", kCell - text.size());
}

std::string table_text(const std::vector<PolicyVerdict>& matrix, const Terminal& terminal) {
  std::string text = heading();
  const CommPolicy* last = nullptr;
  for (const PolicyVerdict& each : matrix) {
    if (!each.preset.empty()) continue;
    const CommPolicy& policy = each.policy;
    if (last != nullptr && last->issue == policy.issue && last->channel == policy.channel) continue;
    last = &policy;
    std::string line = row_label(policy);
    for (const auto protocol : kProtocols) {
      for (const Post post : kPosts) line += cell_text(matrix, policy, protocol, post, terminal);
      line += ' ';
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text + "DEAD: deadlock. SWAP: a receive meets another tensor's send. -: no such policy.\n";
}

Evidence evidence_of(std::string_view name) {
  const auto& presets = comm_policy_presets();
  return std::find_if(presets.begin(), presets.end(),
                      [name](const CommPolicyPreset& preset) { return preset.name == name; })
      ->evidence;
}

/// Each with its verdict, its fields, and how it is known to be that system's.
std::string presets_text(const std::vector<PolicyVerdict>& matrix, bool sizes_known,
                         const Terminal& terminal) {
  constexpr int kName = 26, kVerdict = 10, kIndent = kName + kVerdict;
  const bool wide = terminal.width >= kIndent + 30;
  std::string text;
  for (const PolicyVerdict& each : matrix) {
    if (each.preset.empty()) continue;
    const std::string_view verdict = to_string(each.verdict);
    const std::string all = policy_text(each.policy);
    const std::size_t open = all.find('(');
    const std::string fields = all.substr(open + 1, all.size() - open - 2) + "; " +
                               std::string(to_string(evidence_of(each.preset)));
    const std::string rest = wrapped(fields, terminal.width, wide ? kIndent : 2);
    text += padded(each.preset, kName) +
            painted(terminal, each.verdict == Verdict::Ok ? Ink::Green : Ink::Red, verdict);
    text += wide ? padded("", kVerdict - verdict.size()) + rest.substr(kIndent) : "\n" + rest;
  }
  if (!sizes_known) {
    text += wrapped(
        "mpi-eager counts bytes: no size is known, so every message is taken to fit its credit; "
        "give --message-bytes",
        terminal.width, 0);
  }
  return text;
}

std::string credit_text(const LeastCredit& least) {
  if (!least.messages) return "eager credit: never passes, not even with unlimited credit";
  if (*least.messages == 0) return "eager credit: passes without any";
  std::string text = "eager credit: passes from " + std::to_string(*least.messages) +
                     (*least.messages == 1 ? " message" : " messages") + " on";
  if (least.bytes) return text + ", or from " + std::to_string(*least.bytes) + " bytes on";
  return text + " (for bytes give --message-bytes)";
}

Json fields_of(const PolicyVerdict& each) {
  const CommPolicy& policy = each.policy;
  return {{"preset", each.preset.empty() ? Json() : Json(each.preset)},
          {"issue", to_string(policy.issue)},
          {"channel", to_string(policy.channel)},
          {"post", to_string(policy.post)},
          {"run_order", to_string(policy.run_order)},
          {"send_f", to_string(policy.send_f)},
          {"send_b", to_string(policy.send_b)},
          {"batches", to_string(policy.batches)},
          {"evidence", each.preset.empty() ? Json() : Json(to_string(evidence_of(each.preset)))},
          {"verdict", to_string(each.verdict)}};
}

}  // namespace

void add_matrix_fields(Json& fields, const Subject& subject) {
  Json list = Json::array();
  LeastCredit least;
  if (subject.problems.empty()) {
    for (const auto& each : sim::policy_matrix(subject.order, subject.lowering, subject.costs)) {
      list.push_back(fields_of(each));
    }
    least = sim::least_credit(subject.program, subject.costs);
  }
  fields["matrix"] = std::move(list);
  fields["least_credit"] = {{"messages", least.messages ? Json(*least.messages) : Json()},
                            {"bytes", least.bytes ? Json(*least.bytes) : Json()}};
}

std::string matrix_text(const Subject& subject, const Terminal& terminal) {
  if (!subject.problems.empty()) return "";
  const auto matrix = sim::policy_matrix(subject.order, subject.lowering, subject.costs);
  const LeastCredit least = sim::least_credit(subject.program, subject.costs);
  return "\n" + table_text(matrix, terminal) + "\n" +
         presets_text(matrix, least.sizes_known, terminal) + "\n" +
         wrapped(
             credit_text(least) + ", with all else as under " + policy_text(subject.program.policy),
             terminal.width, 0);
}

}  // namespace pipewright::tools
