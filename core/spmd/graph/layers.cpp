#include "core/spmd/graph/layers.hpp"

#include <algorithm>
#include <queue>
#include <regex>
#include <set>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"

namespace pipewright::spmd {
namespace {

constexpr std::string_view kUniform = "uniform", kByName = "layer:";

std::regex pattern_of(const std::string& text) {
  auto flags = std::regex::ECMAScript | std::regex::icase;
#ifdef __GLIBCXX__
  flags |= std::regex_constants::__polynomial;  // no pattern takes for ever
#endif
  try {
    return std::regex(text, flags);
  } catch (const std::regex_error&) {
    throw InputError("\"vpp_seg_method\": " + in_quotes(text) + " is no pattern of names");
  }
}

/// Of the operators' names those of layers.
class LayerNames {
 public:
  explicit LayerNames(const std::string& method) {
    if (method == kUniform) return;
    if (!method.starts_with(kByName) || method.size() == kByName.size()) {
      throw InputError("\"vpp_seg_method\": expected \"uniform\" or \"layer:\" and a name, found " +
                       in_quotes(method));
    }
    pattern_ = pattern_of(method.substr(kByName.size()));
  }

  /// nullopt: of none.
  std::optional<std::string> of(const std::string& name) const {
    if (!pattern_)
      return up_to_slash(name.substr(std::min(name.find_first_not_of('/'), name.size())));
    std::smatch match;
    if (!std::regex_search(name, match, *pattern_)) return std::nullopt;
    return up_to_slash(name.substr(static_cast<std::size_t>(match.position())));
  }

 private:
  static std::string up_to_slash(const std::string& name) { return name.substr(0, name.find('/')); }

  std::optional<std::regex> pattern_;  // none: uniform
};

[[noreturn]] void refuse_unmatched(const OperatorGraph& graph, const std::string& method) {
  const LayerNames first_names{std::string(kUniform)};
  std::vector<std::string> names;
  for (const GraphOperator& one : graph.operators) {
    const std::string name = *first_names.of(one.name);
    if (std::ranges::count(names, name) == 0) names.push_back(name);
  }
  const std::vector<std::string_view> known(names.begin(), names.end());
  constexpr std::size_t kShown = 6;
  std::string list;
  for (std::size_t at = 0; at < std::min(names.size(), kShown); ++at) {
    list += (at == 0 ? "" : ", ") + in_quotes(names[at]);
  }
  if (names.size() > kShown) list += ", …";
  throw InputError("\"vpp_seg_method\": no operator has " +
                   in_quotes(method.substr(kByName.size())) + " in its name" +
                   did_you_mean(method.substr(kByName.size()), known) +
                   "; their names begin with " + list);
}

}  // namespace

std::vector<std::size_t> program_order(const OperatorGraph& graph) {
  const auto producers = producers_of(graph);
  std::vector<std::set<std::size_t>> takers(graph.operators.size());
  std::vector<std::size_t> missing(graph.operators.size());
  for (std::size_t at = 0; at < graph.operators.size(); ++at) {
    for (const auto& tensor : tensors_of(graph.operators[at].inputs)) {
      const auto maker = tensor ? producers[*tensor] : std::nullopt;
      if (maker && takers[*maker].insert(at).second) ++missing[at];
    }
  }
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  for (std::size_t at = 0; at < missing.size(); ++at) {
    if (missing[at] == 0) ready.push(at);
  }
  std::vector<std::size_t> order;
  while (!ready.empty()) {
    order.push_back(ready.top());
    ready.pop();
    for (const std::size_t taker : takers[order.back()]) {
      if (--missing[taker] == 0) ready.push(taker);
    }
  }
  return order;
}

std::vector<GraphLayer> layers_of(const OperatorGraph& graph,
                                  const std::vector<std::size_t>& program,
                                  const std::string& method) {
  const LayerNames names(method);
  const auto name_at = [&](std::size_t place) -> const std::string& {
    return graph.operators[program[place]].name;
  };
  std::vector<GraphLayer> layers;
  for (std::size_t place = 0; place < program.size(); ++place) {
    const auto layer = names.of(name_at(place));
    if (!layer) continue;
    const bool goes_on = !layers.empty() && layers.back().name == *layer;
    if (!layers.empty() && layers.back().last + 1 != place) {
      throw InputError("operator " + in_quotes(name_at(layers.back().last + 1)) +
                       " stands between those of layers " + in_quotes(layers.back().name) +
                       " and " + in_quotes(*layer) + ", and " + in_quotes(method) +
                       " is not in its name; give it a layer's");
    }
    if (goes_on) {
      layers.back().last = place;
      continue;
    }
    if (const auto before = std::ranges::find(layers, *layer, &GraphLayer::name);
        before != layers.end()) {
      throw InputError("the operators of layer " + in_quotes(*layer) +
                       " do not follow one another: " + in_quotes(name_at(before->last + 1)) +
                       " stands between " + in_quotes(name_at(before->last)) + " and " +
                       in_quotes(name_at(place)));
    }
    layers.push_back({.name = *layer, .first = place, .last = place});
  }
  if (layers.empty()) refuse_unmatched(graph, method);
  return layers;
}

std::vector<std::size_t> sizes_of_parts(const std::vector<GraphLayer>& layers, std::size_t parts,
                                        const std::string& method) {
  const std::size_t each = layers.size() / parts, more = layers.size() % parts;
  const bool is_even = method == kUniform ? each > 0 : more == 0;
  if (!is_even) {
    throw InputError(
        "\"vpp_seg_method\": " + in_quotes(method) + " names " + std::to_string(layers.size()) +
        " layers, from " + in_quotes(layers.front().name) + " to " + in_quotes(layers.back().name) +
        ", which " + (method == kUniform ? "are fewer than" : "do not divide evenly among") +
        " the " + std::to_string(parts) + " parts that all stages have together");
  }
  std::vector<std::size_t> sizes(parts, each);
  for (std::size_t at = parts - more; at < parts; ++at) ++sizes[at];
  return sizes;
}

}  // namespace pipewright::spmd
