// A file of cases in the notation of PaddlePaddle's SPMD rules: operators with their tensors, and
// what is inferred from each.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/json.hpp"
#include "core/spmd/inference.hpp"

namespace pipewright::spmd {

struct InferenceCase {
  std::string id;
  OperatorCall call;
};

struct InferenceAnswer {
  std::optional<Inference> inference;
  std::string refusal;  // where there is none
};

/// The list "spmd_cases" of a document. Throws InputError for what cannot be read; what an operator
/// refuses is an answer.
std::vector<InferenceCase> read_inference_cases(const JsonCursor& document);
InferenceAnswer answer_to(const InferenceCase& inference_case);

/// {"inputs": {"0": {"dims_mapping": …}}, "outputs": …} or {"raises": "…"}.
Json to_json(const InferenceAnswer& answer, const ProcessMesh& mesh);
Json to_json(const Layout& layout, const ProcessMesh& mesh);

/// {"shape": …, "process_ids": …}, and "dim_names" where they are given; `ranks` is the key of the
/// processes.
ProcessMesh read_process_mesh(const JsonCursor& value, std::string_view ranks = "process_ids");
/// A size that is not known yet is -1.
Shape read_shape(const JsonCursor& value);
/// An entry for each dimension: -1, a mesh dimension, or a list of them.
std::vector<std::vector<int>> read_dims_mapping(const JsonCursor& value);
Attribute read_attribute(const JsonCursor& value);

}  // namespace pipewright::spmd
