// Whether two models are the same, for files that were made for one of them. A pure function.
#pragma once

#include <string>

#include "core/base/json.hpp"
#include "core/model/model.hpp"

namespace pipewright {

/// The first place where they differ, "at /layers/0/out the plan has 8, the job 16", with what the
/// two are called; "" if nowhere.
std::string model_difference(const Model& ours, const std::string& our_name, const Model& theirs,
                             const std::string& their_name);
/// The same of any two documents.
std::string document_difference(const Json& first, const std::string& our_name, const Json& second,
                                const std::string& their_name);

}  // namespace pipewright
