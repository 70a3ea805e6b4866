#include "core/spmd/reshard_cases.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"
#include "core/spmd/placement_cases.hpp"
#include "core/spmd/reshard_steps.hpp"

namespace pipewright::spmd {
namespace {

constexpr std::size_t kMostReshardProcesses = 64, kMostReshardDims = 8;

Shape read_sizes(const JsonCursor& value) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  Shape shape;
  std::int64_t elements = 1;
  for (const JsonCursor& element : value.elements()) {
    shape.push_back(element.integer(0, kMost));
    if (shape.back() > kMost / elements) value.fail("at most 2^40 elements");
    elements *= std::max<std::int64_t>(1, shape.back());
  }
  if (shape.size() > kMostReshardDims) value.fail("at most 8 dimensions");
  return shape;
}

Distribution read_distribution(const JsonCursor& value, const Shape& shape) {
  value.only({"mesh", "placements"});
  std::vector<Placement> placements;
  const JsonCursor words = value.at("placements");
  for (const JsonCursor& word : words.elements()) {
    placements.push_back(parsed_at(word, [&] { return placement_of(word.string()); }));
  }
  Distribution distribution{read_nested_mesh(value.at("mesh")), {}};
  if (distribution.mesh.ranks.size() > kMostReshardProcesses) {
    value.at("mesh").fail("at most 64 processes");
  }
  if (placements.size() != distribution.mesh.shape.size()) {
    words.fail("one placement for each dimension of the mesh, which has " +
               std::to_string(distribution.mesh.dims()));
  }
  distribution.layout = parsed_at(words, [&] { return layout_of(placements, shape.size()); });
  return distribution;
}

/// Along which mesh dimensions the values became partial on the way, rather than before it.
std::vector<int> made_partial(const ReshardPlan& plan) {
  std::vector<int> dims;
  for (const ReshardStep& step : plan.steps) {
    if (step.kind == ReshardStep::Kind::MakePartial) dims.push_back(step.mesh_dim);
  }
  return dims;
}

/// Whether a value that stands twice is the same as once.
bool is_idempotent(Reduction reduction) {
  return reduction == Reduction::Average || reduction == Reduction::Maximum ||
         reduction == Reduction::Minimum || reduction == Reduction::All ||
         reduction == Reduction::Any;
}

std::string value_at(const ReshardCase& one, const ReshardPlan& plan, std::size_t place) {
  const std::vector<int> at = one.to.mesh.coordinates(place), made = made_partial(plan);
  for (const auto& [dim, reduction] : one.to.layout.partial) {
    if (std::find(made.begin(), made.end(), dim) == made.end()) return "contribution";
    if (at[static_cast<std::size_t>(dim)] != 0 && !is_idempotent(reduction)) {
      return reduction == Reduction::Sum || reduction == Reduction::Norm ? "zeros" : "identity";
    }
  }
  const LocalPart part = local_part({one.shape, one.to.layout}, one.to.mesh, place);
  if (part.shape != one.shape) return "part";
  const auto& ranks = one.from.mesh.ranks;
  const auto before = std::find(ranks.begin(), ranks.end(), one.to.mesh.ranks[place]);
  if (before == ranks.end() || !one.from.layout.partial.empty()) return "full tensor";
  const auto source = static_cast<std::size_t>(before - ranks.begin());
  const LocalPart had = local_part({one.shape, one.from.layout}, one.from.mesh, source);
  return had.shape == one.shape ? "copy of input" : "full tensor";
}

Json shapes_of(const Shape& shape, const Distribution& distribution) {
  Json shapes = Json::object();
  for (std::size_t place = 0; place < distribution.mesh.ranks.size(); ++place) {
    const LocalPart part = local_part({shape, distribution.layout}, distribution.mesh, place);
    shapes[std::to_string(distribution.mesh.ranks[place])] = part.shape;
  }
  return shapes;
}

Json to_json(const ReshardStep& step) {
  Json fields = summary_of(step);
  if (!step.groups.empty()) fields["groups"] = step.groups;
  for (const PartTransfer& transfer : step.transfers) {
    fields["transfers"].push_back({{"from", transfer.from},
                                   {"to", transfer.to},
                                   {"offset", transfer.part.offset},
                                   {"shape", transfer.part.shape}});
  }
  return fields;
}

}  // namespace

Json summary_of(const ReshardStep& step) {
  Json fields = {{"step", name_of(step.kind)}};
  if (step.mesh_dim != -1) fields["mesh_dim"] = step.mesh_dim;
  if (!step.more_dims.empty()) fields["more_dims"] = step.more_dims;
  if (step.axis != -1) fields["axis"] = step.axis;
  if (step.to_axis != -1) fields["to_axis"] = step.to_axis;
  fields["bytes"] = step.bytes;
  return fields;
}

std::vector<ReshardCase> read_reshard_cases(const JsonCursor& document) {
  std::vector<ReshardCase> cases;
  for (const JsonCursor& value : document.at("reshard_cases").elements()) {
    value.only({"id", "shape", "in", "out", "expect", "source", "inferred_fields"});
    ReshardCase one{.id = read_name(value.at("id")),
                    .shape = read_sizes(value.at("shape")),
                    .from = {},
                    .to = {}};
    one.from = read_distribution(value.at("in"), one.shape);
    one.to = read_distribution(value.at("out"), one.shape);
    cases.push_back(std::move(one));
  }
  return cases;
}

Json answer_to(const ReshardCase& reshard_case, const ReshardPlan& plan) {
  const ProcessMesh& mesh = reshard_case.to.mesh;
  Json offsets = Json::object(), values = Json::object(), pieces = Json::object();
  std::vector<int> dividing;
  for (const std::vector<int>& dims : reshard_case.to.layout.dims) {
    dividing.insert(dividing.end(), dims.begin(), dims.end());
  }
  for (std::size_t place = 0; place < mesh.ranks.size(); ++place) {
    const std::string rank = std::to_string(mesh.ranks[place]);
    offsets[rank] = local_part({reshard_case.shape, reshard_case.to.layout}, mesh, place).offset;
    values[rank] = value_at(reshard_case, plan, place);
    if (dividing.size() != 1) continue;
    pieces[rank] = mesh.coordinates(place)[static_cast<std::size_t>(dividing.front())];
  }
  Json answer = {{"in_local_shapes", shapes_of(reshard_case.shape, reshard_case.from)},
                 {"local_shapes", shapes_of(reshard_case.shape, reshard_case.to)},
                 {"local_offsets", std::move(offsets)},
                 {"value", std::move(values)}};
  if (!pieces.empty()) answer["rank_piece"] = std::move(pieces);
  answer["steps"] = Json::array();
  for (const ReshardStep& step : plan.steps) answer["steps"].push_back(to_json(step));
  answer["bytes"] = plan.bytes;
  answer["cost"] = plan.cost;
  return answer;
}

std::string text_of(const ReshardStep& step) {
  std::string text(name_of(step.kind));
  if (step.mesh_dim != -1) text += " along " + std::to_string(step.mesh_dim);
  for (const int dim : step.more_dims) text += " and " + std::to_string(dim);
  if (step.bytes != 0) text += ", " + std::to_string(step.bytes) + " B";
  return text;
}

std::string text_of(const std::vector<ReshardStep>& steps) {
  std::string text;
  for (const ReshardStep& step : steps) text += (text.empty() ? "" : "; ") + text_of(step);
  return text.empty() ? "none" : text;
}

}  // namespace pipewright::spmd
