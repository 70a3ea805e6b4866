#include "core/spmd/graph/explanation.hpp"
#include "core/spmd/graph/graph_json.hpp"
#include "core/spmd/reshard_cases.hpp"

namespace pipewright::spmd {

Json to_json(const GraphReshard& reshard, const OperatorGraph& graph) {
  const auto side = [&](std::size_t mesh, const Layout& layout) {
    Json fields = {{"mesh", graph.meshes[mesh].name}};
    fields.update(layout_to_json(layout));
    return fields;
  };
  Json operators = Json::array(), steps = Json::array();
  for (const std::size_t at : reshard.operators) operators.push_back(graph.operators[at].name);
  for (const ReshardStep& step : reshard.plan.steps) steps.push_back(summary_of(step));
  return {{"tensor", graph.tensors[reshard.tensor].name},
          {reshard.is_made ? "made_by" : "taken_by", std::move(operators)},
          {"from", side(reshard.from_mesh, reshard.from)},
          {"to", side(reshard.to_mesh, reshard.to)},
          {"bytes", reshard.plan.bytes},
          {"steps", std::move(steps)}};
}

Json parts_to_json(const Completion& completion) {
  Json parts = Json::array();
  for (const PipelinePart& one : completion.meshes.parts) {
    parts.push_back({{"stage", one.stage},
                     {"chunk_id", one.chunk},
                     {"process_mesh", completion.graph.meshes[one.mesh].name},
                     {"layers", one.layers}});
  }
  return parts;
}

Json to_json(const Completion& completion) {
  Json document = to_json(completion.graph);
  document["reshards"] = Json::array();
  for (const GraphReshard& reshard : completion.reshards) {
    document["reshards"].push_back(to_json(reshard, completion.graph));
  }
  return document;
}

}  // namespace pipewright::spmd
